"""The fingerprint of a function: it moves when code that the function may reach changes, and only then."""

from __future__ import annotations

import compileall
import importlib
import linecache
import os
import py_compile
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from instep.errors import Outdated, UserError
from instep.pipeline.code_fingerprint import changed_code, code_fingerprint, loaded_fingerprint
from instep.pipeline.documents.functions import OwnFunction
from instep.pipeline.loading import load_transform

PACKAGES = ("shop", "beside", "beside_words", "deeper", "spaced")


class Code:
    """Modules in a folder that is on the path, each time as a process finds them that has just started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)

    def fingerprint(self, files: Mapping[str, str], name: str = "shop.main:clean") -> str:
        self.write(files)
        forget()
        load_transform(name)
        return code_fingerprint(name)

    def notices(self, files: Mapping[str, str], changed: Mapping[str, str], name: str = "shop.main:clean") -> bool:
        return self.fingerprint(files, name) != self.fingerprint({**files, **changed}, name)


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]
    importlib.invalidate_caches()
    linecache.clearcache()


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Code]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield Code(tmp_path)
    forget()


MAIN = '''
"""A shop's texts."""
import functools
import json
import re
from re import sub as replaced

import yaml

import beside
import deeper.down
from shop import registry, words
from shop.again import renamed as again
from shop.registry import ENTRIES, Kept
from shop.words import LIMIT, Cleaner, Unused

try:
    from shop.quick import quick
except ImportError:
    quick = None

if __name__ == "__main__":
    print("as a script")

PATTERN = re.compile("aaa")
SECRETLY, OTHER = {"kept": 1}, [2]
SECRETLY["later"] = 10
CLEANER = Cleaner(3)
def _one(value): return value + "one"
def _two(value, what): return value + what
def _three(value=str("three")): return value
TABLE = {"x": _one}
PART = functools.partial(_two, what="part")
LAMBDAS = [lambda value: value + "lambda"]
def marked(function):
    return lambda value: function(value) + "marked"
@marked
def _four(value): return value
class Held:
    kind = "kind"
    class Inner:
        def run(self): return "inner"
    def run(self): return self.other()
    def other(self): return "method"

def clean(frame):
    """Cleans."""
    from shop.lazy import lazily
    from .lazier import lazier
    from . import laziest
    import shop.at_last
    def inner(value):
        return words.shorten(value, LIMIT)
    made = inner(frame), Cleaner().run, yaml.safe_load, json.dumps, SECRETLY, OTHER, again, quick
    made += PATTERN, TABLE["x"], CLEANER, PART, LAMBDAS, _three, _four, Held, replaced
    return made, lazily, lazier, laziest.f, shop.at_last.f, beside.f, deeper.down.f, ENTRIES, registry.FOUND, Kept

def unrelated():
    return 111
UNRELATED = re.compile("not read")
'''
WORDS = """
import re
LIMIT = 10
def shorten(value, limit):
    return _cut(value)[:limit]
def _cut(value):
    return re.sub("x", "y", value)
def unused():
    return 1
class Base:
    def under(self):
        return "based"
class Cleaner(Base):
    def __init__(self, size=0):
        self.size = size
    def run(self):
        return 2
class Unused(Base):
    pass
"""
REGISTRY = """
ENTRIES = {}
FOUND = []
def register(function):
    ENTRIES[function.__name__] = function
    return function
class Kept:
    kinds = []
    def __init_subclass__(cls):
        cls.kinds.append(cls)
from shop import plugins
"""
PLUGINS = """
from shop.registry import ENTRIES, FOUND, Kept, register
def counted(function):
    return function
def _aside():
    return "aside"
@register
def first():
    return "registered"
class Derived(Kept):
    size = "derived"
FOUND.append(_aside)
@counted
def second():
    return "counted"
"""
FILES = {
    "shop/__init__.py": "import decimal\ndecimal.getcontext().prec = 17\n",
    "shop/main.py": MAIN,
    "shop/words.py": WORDS,
    "shop/again.py": "from shop.deep import inside as renamed\n",
    "shop/deep.py": "import shop.main\ndef inside(): return 'deep'\n",
    "shop/quick.py": "inside = 1\ndef quick(): return 'quick'\n",
    "shop/lazy.py": "def lazily(): return 'lazily'\n",
    "shop/lazier.py": "from shop.star import *\ndef lazier(): return starred()\n",
    "shop/star.py": "def starred(): return 'star'\n",
    "shop/laziest.py": "def f(): return globals()['h' + 'idden']()\ndef hidden(): return 'hidden'\n",
    "shop/at_last.py": "def f(): return 'at last'\ndef unasked(): return 'unasked'\n",
    "shop/registry.py": REGISTRY,
    "shop/plugins.py": PLUGINS,
    "beside.py": "from beside_words import f\n",
    "beside_words.py": "def f(): return 'beside'\n",
    "deeper/down.py": "from . import further\ndef f(): return further.ONE\n",
    "deeper/further.py": "ONE = 'namespace'\n",
}


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("shop/main.py", "made = inner(frame)", "made = inner(inner(frame))"),
        ("shop/main.py", "import yaml", "import pydantic as yaml"),
        ("shop/main.py", "import sub as", "import subn as"),
        ("shop/main.py", '"aaa"', '"bbb"'),
        ("shop/main.py", '{"kept": 1}', '{"kept": 3}'),
        ("shop/main.py", "= 10", "= 11"),
        ("shop/main.py", "Cleaner(3)", "Cleaner(4)"),
        ("shop/main.py", '"one"', '"two"'),
        ("shop/main.py", '"part"', '"whole"'),
        ("shop/main.py", '"lambda"', '"mu"'),
        ("shop/main.py", '"three"', '"four"'),
        ("shop/main.py", '"marked"', '"unmarked"'),
        ("shop/main.py", '"kind"', '"sort"'),
        ("shop/main.py", '"inner"', '"outer"'),
        ("shop/main.py", '"method"', '"way"'),
        ("shop/main.py", "quick = None", "quick = len"),
        ("shop/words.py", '"x", "y"', '"x", "z"'),
        ("shop/words.py", "[:limit]", "[limit:]"),
        ("shop/words.py", "LIMIT = 10", "LIMIT = 11"),
        ("shop/words.py", "return 2", "return 3"),
        ("shop/words.py", "size=0", "size=1"),
        ("shop/words.py", "based", "founded"),
        ("shop/deep.py", "deep", "deeper"),
        ("shop/again.py", "shop.deep", "shop.quick"),
        ("shop/quick.py", "'quick'", "'slow'"),
        ("shop/lazy.py", "'lazily'", "'busily'"),
        ("shop/star.py", "'star'", "'sun'"),
        ("shop/laziest.py", "'hidden'", "'shown'"),
        ("shop/at_last.py", "'at last'", "'at first'"),
        ("shop/__init__.py", "17", "18"),
        ("shop/plugins.py", '"registered"', '"entered"'),
        ("shop/plugins.py", '"derived"', '"led"'),
        ("shop/plugins.py", '"aside"', '"beside"'),
        ("beside_words.py", "'beside'", "'between'"),
        ("deeper/further.py", "namespace", "space"),
    ],
)
def test_what_the_function_may_reach_counts(code: Code, file: str, old: str, new: str) -> None:
    assert old in FILES[file]
    assert code.notices(FILES, {file: FILES[file].replace(old, new)})


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("shop/main.py", "Cleans.", "Cleans well."),
        ("shop/main.py", "A shop's texts.", "Texts."),
        ("shop/main.py", '    """Cleans."""\n', ""),
        ("shop/main.py", "    def inner", "    # why\n\n    def inner"),
        ("shop/main.py", 'def _one(value): return value + "one"', 'def _one(value):\n    return (value + ("one"))'),
        ("shop/main.py", "as a script", "as a program"),
        ("shop/main.py", "111", "222"),
        ("shop/main.py", "not read", "not found"),
        ("shop/main.py", "def unrelated", "def another():\n    pass\ndef unrelated"),
        ("shop/words.py", "return 1", "return 5"),
        ("shop/words.py", "class Unused(Base):\n    pass", "class Unused(Base):\n    one = 1"),
        ("shop/at_last.py", "'unasked'", "'asked'"),
        ("shop/plugins.py", '"counted"', '"told"'),
        ("unread.py", "", "ONE = 1"),
    ],
)
def test_what_it_does_not_reach_does_not_count(code: Code, file: str, old: str, new: str) -> None:
    files = {**FILES, "unread.py": ""}
    assert old in files[file]
    assert not code.notices(files, {file: files[file].replace(old, new)})


@pytest.mark.parametrize("line", ["from shop.words import *", "from shop import words\nONE = vars(words)"])
def test_the_docstring_of_a_module_that_counts_as_a_whole_does_not_count(code: Code, line: str) -> None:
    files = {
        "shop/__init__.py": "",
        "shop/main.py": f"{line}\ndef clean(frame): return ONE\n",
        "shop/words.py": '"""Words."""\nONE = 1\n',
    }
    assert not code.notices(files, {"shop/words.py": '"""Words, explained."""\nONE = 1\n'})
    assert code.notices(files, {"shop/words.py": '"""Words."""\nONE = 2\n'})


def test_a_module_in_no_package_may_try_to_take_all_of_its_package(code: Code) -> None:
    text = "try:\n    from . import *\nexcept ImportError:\n    ONE = {}\ndef clean(frame): return ONE\n"
    assert code.notices({"spaced.py": text.format(1)}, {"spaced.py": text.format(2)}, "spaced:clean")


@pytest.mark.parametrize(
    "text",
    [
        "import typing\nif not typing.TYPE_CHECKING:\n    ONE = 111\n",
        "match (111, 2):\n    case [first, *ONE]:\n        pass\n",
        "match {1: 111}:\n    case {**ONE}:\n        pass\n",
        "ONE = []\ndef keep(f): ONE.append(f); return f\nclass C:\n    @keep\n    def run(self): return 111\n",
        "ONE = []\nclass Listed(type):\n    def __init__(cls, *given): ONE.append(cls)\n"
        "class C(metaclass=Listed):\n    size = 111\n",
        "import functools\n@functools.singledispatch\ndef ONE(a): return a\n@ONE.register\ndef _(a: str): return 111\n",
        "class ONE:\n    all = {}\n    @classmethod\n    def add(cls, f): cls.all[f] = f; return f\n"
        "@ONE.add\ndef kept(): return 111\n",
        "ONE = []\ndef keep(f): ONE.append(f); return f\nif ONE is not None:\n    @keep\n    def kept(): return 111\n",
        "def keep(f, into=[]): into.append(f); return f\n@keep\ndef kept(): return 111\ndef ONE(): return keep\n",
        "import sys\nhidden = 111\nONE = vars(sys.modules[__name__])['hid' + 'den']\n",
    ],
    ids=[
        *("not for type checkers", "star pattern", "mapping pattern", "decorated method", "metaclass"),
        *("dispatch", "table of a class", "decorated in a condition", "table of a function", "vars"),
    ],
)
def test_code_counts_whatever_way_leads_to_it(code: Code, text: str) -> None:
    text += "def clean(frame): return ONE\n"
    assert code.notices({"shop/main.py": text}, {"shop/main.py": text.replace("111", "222")})


def test_a_table_of_another_module_that_is_added_to_in_place_counts(code: Code) -> None:
    files = {
        "shop/__init__.py": "",
        "shop/tables.py": "TABLE = {}\n",
        "shop/more.py": "from shop.tables import TABLE\ndef read(): return 111\nTABLE |= {'pdf': read}\n",
        "shop/main.py": "from shop.tables import TABLE\nimport shop.more\ndef clean(frame): return TABLE\n",
    }
    assert code.notices(files, {"shop/more.py": files["shop/more.py"].replace("111", "222")})


def test_the_python_that_runs_does_not_count(code: Code) -> None:
    """Trees of later versions have more fields, such as the type parameters of a function."""
    text = "def clean(frame, *given, one=None, **named): return [{**named, 'a': f'{one!r:>{3}}'}, u'text', 1.0, None]\n"
    seen_with_3_11_and_3_12_and_3_13 = "078e1c4eec0f5cc3"
    assert code.fingerprint({"shop/main.py": text}) == seen_with_3_11_and_3_12_and_3_13


def test_functions_may_stand_in_another_order(code: Code) -> None:
    one, other = "def clean(frame): return cut(frame)\n", "def cut(frame): return 1\n"
    files = {"shop/__init__.py": "", "shop/main.py": one + other}
    assert not code.notices(files, {"shop/main.py": other + one})


def test_constants_that_are_bound_again_may_not(code: Code) -> None:
    files = {"shop/main.py": "ONE = 1\nONE = 2\ndef clean(frame): return ONE\n"}
    assert code.notices(files, {"shop/main.py": "ONE = 2\nONE = 1\ndef clean(frame): return ONE\n"})


@pytest.mark.parametrize(
    "text",
    [
        "import functools\nclean = functools.partial(print, 'one')\n",
        "class Clean:\n    def __call__(self, frame): return 'one'\nclean = Clean()\n",
        "def kept(function):\n    return lambda frame: function(frame)\n@kept\ndef clean(frame): return 'one'\n",
        "def made():\n    return lambda frame: 'one'\nglobals()['clean'] = made()\n",
        "def made():\n    return lambda frame: 'one'\ndef __getattr__(name):\n    return made()\n",
    ],
    ids=["partial", "object", "decorated", "set by a string", "__getattr__"],
)
def test_a_function_may_be_made_in_any_way(code: Code, text: str) -> None:
    assert code.notices({"shop/main.py": text}, {"shop/main.py": text.replace("'one'", "'two'")})


def test_what_a_call_may_have_put_into_a_table_counts_though_its_result_has_a_name(code: Code) -> None:
    text = (
        "TABLE = {}\ndef register(name, function):\n    TABLE[name] = function\n    return function\n"
        "def one(frame): return 'one'\nkept = register('one', one)\n"
        "def other(): return 'other'\nUNUSED = other()\n"
        "def clean(frame): return TABLE['one'](frame)\n"
    )
    assert code.notices({"shop/main.py": text}, {"shop/main.py": text.replace("return 'one'", "return 'two'")})
    assert not code.notices({"shop/main.py": text}, {"shop/main.py": text.replace("'other'", "'another'")})


def test_a_name_that_a_function_sets_counts_with_it(code: Code) -> None:
    text = "ONE = 0\ndef start():\n    global ONE\n    ONE = 1\nTWO = start()\ndef clean(frame): return ONE\n"
    assert code.notices({"shop/main.py": text}, {"shop/main.py": text.replace("ONE = 1", "ONE = 2")})


def test_of_an_installed_package_all_counts(code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.pipeline.own_modules.is_installed", lambda place: place == code.folder.resolve())
    files = {"shop/__init__.py": "", "shop/main.py": "def clean(frame): return 1\ndef other(): return 2\n"}
    assert code.notices(files, {"shop/main.py": files["shop/main.py"].replace("2", "3")})


def test_a_module_that_is_handed_on_counts_as_a_whole(code: Code) -> None:
    files = {
        "shop/main.py": "import beside\ndef clean(frame): return getattr(beside, frame.name)()\n",
        "beside.py": "def one(): return 1\n",
    }
    assert code.notices(files, {"beside.py": "def one(): return 2\n"})


@pytest.mark.parametrize("text", ["def f(: return 1\n", "one = '\0'\n"], ids=["no Python", "no text"])
def test_of_what_cannot_be_parsed_all_counts(code: Code, text: str) -> None:
    files = {"shop/main.py": "def clean(frame):\n    from beside import f\n    return f()\n", "beside.py": text}
    assert code.notices(files, {"beside.py": text.replace("one", "two").replace("1", "2")})


def test_of_what_has_no_source_the_compiled_code_counts(code: Code) -> None:
    def compiled(text: str) -> str:
        code.write({"beside.py": text})
        assert compileall.compile_file(code.folder / "beside.py", legacy=True, quiet=1, force=True)
        (code.folder / "beside.py").unlink()
        return code.fingerprint({"shop/main.py": "import beside\ndef clean(frame): return beside.f()\n"})

    assert compiled("def f(): return 1\n") != compiled("def f(): return 2\n")


@pytest.mark.parametrize(
    "files",
    [
        {"shop/main.py": "def clean(frame):\n    return other(frame)\ndef other(frame):\n    return clean(frame)\n"},
        {
            "shop/main.py": "from shop import words\ndef clean(frame):\n    return words.f()\n",
            "shop/words.py": "from shop import main\ndef f():\n    return main.clean\n",
        },
        {
            "shop/main.py": "def clean(frame):\n    from shop import one\n    return one.x\n",
            "shop/one.py": "from shop.two import *\nfrom shop.two import x\n",
            "shop/two.py": "from shop.one import *\nfrom shop.one import x\n",
        },
    ],
    ids=["functions", "modules", "names that are nowhere"],
)
def test_code_that_leads_back_to_itself_is_no_endless_tale(code: Code, files: Mapping[str, str]) -> None:
    assert code.fingerprint(files)


def test_long_sums_are_no_error(code: Code) -> None:
    words = " + ".join(["'x'"] * 1_200)
    one = code.fingerprint({"shop/main.py": f"WORDS = {words}\ndef clean(frame): return WORDS\n"})
    assert one != code.fingerprint({"shop/main.py": f"WORDS = {words} + 'y'\ndef clean(frame): return WORDS\n"})


def test_a_package_of_300_modules_takes_less_than_a_second(code: Code) -> None:
    """Each with a class of one base, which leads to all of them."""
    base = "class Base:\n    def run(self, value):\n        from shop import m0\n        return m0.start(value)\n"
    functions = "".join(f"def f{each}(value):\n    return [x + {each} for x in value if x]\n" for each in range(10))
    files = {
        f"shop/m{each}.py": f"from shop import m{each + 1}\nfrom shop.base import Base\n{functions}"
        f"class Own(Base):\n    one = {each}\n"
        f"def start(value):\n    return m{each + 1}.start(f3(value))\n"
        for each in range(300)
    }
    last = {"shop/m300.py": "def start(value):\n    return 1\n"}
    code.write({"shop/__init__.py": "", "shop/base.py": base, **files, **last})
    forget()
    began = time.process_time()
    before = code_fingerprint("shop.m0:start")
    assert time.process_time() - began < 1
    code.write({"shop/m300.py": "def start(value):\n    return 2\n"})
    assert code_fingerprint("shop.m0:start") != before


def test_loaded_code_keeps_its_fingerprint_though_its_file_changes(code: Code) -> None:
    def loaded() -> str:
        return loaded_fingerprint("shop.main:clean", load_transform("shop.main:clean"))

    before = code.fingerprint({"shop/main.py": "def clean(frame): return 1\n"})
    assert loaded() == before
    code.write({"shop/main.py": "def clean(frame): return 2\n"})
    assert code_fingerprint("shop.main:clean") != before
    assert loaded() == before
    forget()
    assert loaded() != before


def test_a_module_that_changed_after_it_was_loaded_runs_with_no_function_that_is_loaded_later(code: Code) -> None:
    """Else what old code made would be recorded as made by the new one."""

    def loaded(name: str) -> str:
        return loaded_fingerprint(name, load_transform(name))

    code.write(
        {
            "shop/__init__.py": "",
            "shop/shared.py": "def own(x): return x\n",
            "shop/one.py": "from shop.shared import own\ndef f(frame): return own(frame)\n",
            "shop/two.py": "from shop.shared import own\ndef f(frame): return own(frame)\n",
        }
    )
    forget()
    loaded("shop.one:f")
    code.write({"shop/shared.py": "def own(x): return x + 1\n"})
    with pytest.raises(Outdated, match=r"shop\.shared has changed since this process loaded it"):
        loaded("shop.two:f")
    forget()  # A restart, or all imported anew.
    assert loaded("shop.two:f") == code_fingerprint("shop.two:f")


SLOW = """
from pathlib import Path

code = Path(__file__).with_name("main.py")
code.write_text(code.read_text().replace("return 1", "return 22"))  # As an editor would while an import takes long.
"""


def test_what_is_saved_while_it_is_imported_is_not_what_runs(code: Code) -> None:
    code.write({"shop/slow.py": SLOW, "shop/main.py": "import shop.slow\ndef clean(frame): return 1\n"})
    forget()
    before = code_fingerprint("shop.main:clean")
    clean = load_transform("shop.main:clean")
    assert clean(None) == 1
    assert loaded_fingerprint("shop.main:clean", clean) == before
    assert code_fingerprint("shop.main:clean") != before
    assert changed_code(["shop.main:clean"]) == ["shop.main:clean"]


def test_what_python_has_compiled_of_an_older_source_is_not_run(code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python compares times in whole seconds, and sizes."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = code.folder / "shop" / "main.py"
    for value in (1, 2):
        code.write({"shop/main.py": f"def clean(frame): return {value}\n"})
        os.utime(file, (1_000_000, 1_000_000))
        py_compile.compile(str(file)) if value == 1 else None
        forget()
        assert load_transform("shop.main:clean")(None) == value


def test_what_was_fingerprinted_is_what_is_imported_later(code: Code) -> None:
    """By a function that imports it when it is called."""
    code.write(
        {
            "shop/later.py": "def own(): return 1\n",
            "shop/main.py": "def clean(frame):\n    from shop.later import own\n    return own()\n",
        }
    )
    forget()
    clean = load_transform("shop.main:clean")
    found = loaded_fingerprint("shop.main:clean", clean)
    code.write({"shop/later.py": "def own(): return 22\n"})
    assert clean(None) == 1
    assert loaded_fingerprint("shop.main:clean", clean) == found
    importlib.reload(sys.modules["shop.later"])
    assert clean(None) == 22
    assert loaded_fingerprint("shop.main:clean", clean) == code_fingerprint("shop.main:clean") != found


@pytest.mark.parametrize(
    "edited",
    ["# It is as it was.\ndef own(x): return x\n", "def own(x): return x\ndef more(x): return x + 1\n"],
    ids=["comment", "another function"],
)
def test_a_module_that_changed_in_what_does_not_count_runs_with_functions_that_are_loaded_later(
    code: Code, edited: str
) -> None:
    def loaded(name: str) -> str:
        return loaded_fingerprint(name, load_transform(name))

    function = "from shop.shared import own\ndef f(frame): return own(frame)\n"
    shared = "def own(x): return x\n"
    code.write({"shop/__init__.py": "", "shop/shared.py": shared, "shop/one.py": function, "shop/two.py": function})
    forget()
    loaded("shop.one:f")
    code.write({"shop/shared.py": edited})
    assert loaded("shop.two:f") == code_fingerprint("shop.two:f")


def test_a_function_that_is_imported_again_is_the_one_that_is_called(code: Code) -> None:
    """In a notebook, say."""
    code.write({"shop/main.py": "def clean(frame): return 1\n"})
    forget()
    before = OwnFunction.of("shop.main:clean", "parse.function")
    assert before.function(None) == 1
    code.write({"shop/main.py": "def clean(frame): return 22\n"})
    importlib.reload(sys.modules["shop.main"])
    after = OwnFunction.of("shop.main:clean", "parse.function")
    assert after.code != before.code
    assert after.function(None) == 22


@pytest.mark.parametrize("called", [True, False])
def test_nor_does_one_that_functions_import_when_they_are_called(
    code: Code, monkeypatch: pytest.MonkeyPatch, called: bool
) -> None:
    monkeypatch.setattr("instep.pipeline.code_fingerprint._modules", {})  # No other test has loaded any.

    def loaded(name: str) -> str:
        return loaded_fingerprint(name, load_transform(name))

    lazy = "def f(frame):\n    from shop.shared import own\n    return own(frame)\n"
    code.write(
        {
            "shop/__init__.py": "",
            "shop/shared.py": "def own(x): return x\n",
            "shop/one.py": lazy,
            "shop/two.py": lazy,
        }
    )
    forget()
    loaded("shop.one:f")
    if called:
        load_transform("shop.one:f")(1)
    code.write({"shop/shared.py": "def own(x): return x + 1\n"})
    with pytest.raises(Outdated, match=r"shop\.shared has changed since this process loaded it"):
        loaded("shop.two:f")


def upgrade(monkeypatch: pytest.MonkeyPatch, distribution: str) -> None:
    """Another version of it is installed from now on."""
    monkeypatch.setattr(
        "instep.pipeline.code_fingerprint.version",
        lambda name: "99" if name.lower() == distribution else version(name),
    )


def test_the_versions_of_the_libraries_that_a_function_names_count(code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code.fingerprint(FILES)
    upgrade(monkeypatch, "pyyaml")
    assert code_fingerprint("shop.main:clean") != before


def test_of_a_package_without_a_version_the_files_count(
    code: Code, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Code(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.syspath_prepend(str(elsewhere.folder))
    elsewhere.write({"spaced/__init__.py": "", "spaced/one.py": "def f(): return 1\n"})
    before = code.fingerprint({"shop/main.py": "from spaced.one import f\ndef clean(frame): return f()\n"})
    (elsewhere.folder / "spaced" / ".#one.py").symlink_to("editor@host.1")
    assert code_fingerprint("shop.main:clean") == before, "an editor has it open"
    elsewhere.write({"spaced/one.py": "def f(): return 2\n"})
    assert code_fingerprint("shop.main:clean") != before


def test_the_version_of_a_functions_own_distribution_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = OwnFunction.of("yaml:safe_load", "parse.function").code
    upgrade(monkeypatch, "pyyaml")
    assert OwnFunction.of("yaml:safe_load", "parse.function").code != before


@pytest.mark.parametrize("name", ["no.such.package:clean", "shop.main:missing", "shop.main:LIMIT"])
def test_a_transform_that_is_not_there_is_the_users_error(code: Code, name: str) -> None:
    code.write({"shop/main.py": "LIMIT = 1\ndef clean(frame): return 1\n"})
    forget()
    with pytest.raises(UserError):
        load_transform(name)
