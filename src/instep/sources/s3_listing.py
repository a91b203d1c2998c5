"""List objects of S3 page by page: `find` of s3fs holds all of them at once, with 2 kB for each."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

#: Objects and folders in an answer, at most; stores give no more.
PAGE: Final = 1_000
#: Folders that are looked at to part a listing, at once and in all; and what is looked through in each.
_AT_ONCE: Final = 16
_LOOKS: Final = 2_000
_LOOKED_THROUGH: Final = 50_000


class Page(NamedTuple):
    """An answer of a store: objects, as s3fs describes them; and prefixes below which there are more, of a listing that
    tells these apart. `removed`: there were others, of which older versions are left.
    """

    objects: Sequence[Mapping[str, Any]]
    prefixes: Sequence[str]
    removed: bool = False


def is_s3(fs: Any) -> bool:
    """Whether it is the file system of s3fs itself, and not one around it."""
    return type(fs).__module__.partition(".")[0] == "s3fs"


def prefix_of(fs: Any, folder: str) -> tuple[str, str]:
    """The bucket of a folder, and the prefix of what is in it."""
    bucket, key, _ = fs.split_path(folder)
    return bucket, f"{key.rstrip('/')}/" if key else ""


def pages(fs: Any, bucket: str, prefix: str, shallow: bool = False) -> Iterator[Page]:
    """Whatever has this prefix; `shallow`: without what has a slash behind it, of which `prefixes` tell. Raises what
    s3fs raises.
    """
    versioned = fs.version_aware
    call, listed = ("list_object_versions", "Versions") if versioned else ("list_objects_v2", "Contents")
    asked: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/" if shallow else "", "MaxKeys": PAGE}
    place: dict[str, str] = {}
    while True:
        found = fs.call_s3(call, **asked, **place)
        objects = [_described(bucket, each) for each in found.get(listed, ()) if not versioned or each.get("IsLatest")]
        prefixes = [each["Prefix"] for each in found.get("CommonPrefixes", ())]
        yield Page(objects, prefixes, removed=bool(found.get("DeleteMarkers")))
        if not found.get("IsTruncated"):
            return
        before, place = place, _next_place(found)
        if not place or place == before:
            raise OSError(errno.EPROTO, "it does not tell where its next page begins")


def _next_place(found: Mapping[str, Any]) -> dict[str, str]:
    """The place where the next page begins. Behind a prefix there is no version, and stores refuse an empty one."""
    places = ("ContinuationToken", "KeyMarker", "VersionIdMarker")
    return {each: found[f"Next{each}"] for each in places if found.get(f"Next{each}")}


class Portion(NamedTuple):
    """Objects with a prefix; `shallow`: without those that have a slash behind it."""

    prefix: str
    shallow: bool = False


def parted(fs: Any, bucket: str, prefix: str, enough: int) -> list[Portion]:
    """Everything with a prefix, in portions: folders, level by level until there are `enough`, and what lies beside
    them. A folder in which too much lies, or that cannot be looked at, is one portion with all that is in it.
    """
    portions: list[Portion] = []
    level, looks = [prefix], 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        while level and len(portions) + len(level) < enough and looks < _LOOKS:
            looks += len(level)
            inside = [*pool.map(partial(_look, fs, bucket), level)]
            portions += (
                Portion(each, shallow=found is not None)
                for each, found in zip(level, inside, strict=True)
                if found is None or found.objects
            )
            level = [each for found in inside if found is not None for each in found.prefixes]
    return [*portions, *map(Portion, level)]


def _look(fs: Any, bucket: str, prefix: str) -> Page | None:
    """A folder on one page, with an object of it, if it has any. None if there is too much, or it cannot be listed."""
    objects: Sequence[Mapping[str, Any]] = ()
    prefixes: list[str] = []
    seen = 0
    try:
        for page in pages(fs, bucket, prefix, shallow=True):
            objects = objects or page.objects[:1]
            prefixes += page.prefixes
            seen += len(page.objects) + len(page.prefixes)
            if seen > _LOOKED_THROUGH:
                return None
    except Exception:  # Who lists it says what is wrong.
        return None
    return Page(objects, prefixes)


def _described(bucket: str, found: Mapping[str, Any]) -> dict[str, Any]:
    name = f"{bucket}/{found['Key']}"
    return {**found, "Key": name, "name": name, "type": "file", "size": found["Size"]}
