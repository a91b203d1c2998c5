// A filter as it is being written: what may come next at the caret, and how a condition is added or taken away.

const TOKEN = /\s+|'(?:[^']|'')*(?:'|$)|"(?:[^"]|"")*(?:"|$)|<>|!=|<=|>=|[=<>(),]|[^\s'"<>=!(),]+|./gu;
const WORD = /^[^\s'"<>=!(),]/u;

const ORDERED = ["=", "!=", "<", "<=", ">", ">=", "BETWEEN", "IN (", "NOT IN (", "IS NULL", "IS NOT NULL"];
const OPERATORS = {
  bool: ["=", "!=", "IS NULL", "IS NOT NULL"],
  string: ["=", "!=", "IN (", "NOT IN (", "LIKE '", "NOT LIKE '", "<", "<=", ">", ">=", "IS NULL", "IS NOT NULL"],
  list: ["CONTAINS", "NOT CONTAINS", "IS NULL", "IS NOT NULL"],
};
const QUOTED = new Set(["string", "string[]", "date", "timestamp"]);

const isClosed = (token) => token.length > 1 && token.endsWith(token[0]);
const nameOf = (token) => (token.startsWith('"') ? token.slice(1, -1).replaceAll('""', '"') : token);

/** What each kind of place makes of a token: the next kind of place. `seen` is what is known of the condition. */
const STEPS = {
  column(token, seen) {
    if (token === "(" || token.toUpperCase() === "NOT") return "column";
    Object.assign(seen, { column: nameOf(token), operator: "", list: false, between: false });
    return "operator";
  },
  operator(token, seen) {
    const word = token.toUpperCase();
    if (word === "NOT") return "operator";
    if (word === "IS") return "null";
    Object.assign(seen, { operator: word, between: word === "BETWEEN" });
    return "value";
  },
  null: (token) => (token.toUpperCase() === "NOT" ? "null" : "joint"),
  value(token, seen) {
    if (token === "(") seen.list = true;
    if (token === "(" || token === ",") return "value";
    if (token === ")") return "joint";
    if (seen.list) return "comma";
    return seen.between ? "between" : "joint";
  },
  comma: (token) => (token === "," ? "value" : "joint"),
  between(_token, seen) {
    seen.between = false;
    return "value";
  },
  joint: (token) => (token === ")" ? "joint" : "column"),
};

/**
 * What is being written behind `before`: `{place, column, operator, begin, from}`. `place` is a key of `STEPS`, `begin`
 * what is there of it already, and `from` where that begins.
 */
export function context(before) {
  const tokens = before.match(TOKEN) ?? [];
  const last = tokens.at(-1) ?? "";
  const open = WORD.test(last) || (/^['"]/.test(last) && !isClosed(last));
  const seen = { column: "", operator: "", list: false, between: false };
  let place = "column";
  for (const token of open ? tokens.slice(0, -1) : tokens) {
    if (token.trim()) place = STEPS[place](token, seen);
  }
  const begin = !open ? "" : last.replace(/^['"]/, "").replaceAll("''", "'");
  return { place, column: seen.column, operator: seen.operator, begin, from: before.length - (open ? last.length : 0) };
}

/** Whether values of this column are to be looked up to complete it. */
export function wantsValues({ place, operator }, column) {
  return place === "value" && Boolean(column?.counted) && !["LIKE", "BETWEEN"].includes(operator);
}

/** `[{text, insert, hint}]`, of columns `[{name, type, counted}]` and values `[{value, count}]`. */
export function suggestions(found, columns, values) {
  const column = columns.find((each) => each.name === found.column);
  const begins = ({ text }) => text.toLowerCase().startsWith(found.begin.toLowerCase());
  return candidates(found, columns, column, values).filter(begins);
}

function candidates({ place, operator }, columns, column, values) {
  switch (place) {
    case "column":
      return [...columns.map(({ name, type }) => word(written(name), type)), word("NOT")];
    case "operator":
      return operators(column?.type).map((each) => ({
        text: each.replace(/ ?['(]$/, ""),
        insert: /['(]$/.test(each) ? each : `${each} `,
      }));
    case "null":
      return [word("NULL"), word("NOT NULL")];
    case "value":
      if (operator === "LIKE") return [];
      if (column?.type === "bool") return [word("true"), word("false")];
      return values.map(({ value, count }) => ({
        text: String(value),
        insert: `${literal(value, column?.type)}${operator === "IN" ? "" : " "}`,
        hint: count.toLocaleString("en-US"),
      }));
    case "comma":
      return [
        { text: ",", insert: ", " },
        { text: ")", insert: ") " },
      ];
    case "between":
      return [word("AND")];
    default:
      return [word("AND"), word("OR")];
  }
}

function word(text, hint) {
  return { text, insert: `${text} `, hint };
}

function operators(type) {
  if (type?.endsWith("[]")) return OPERATORS.list;
  return OPERATORS[type] ?? ORDERED;
}

function written(name) {
  return /^[a-z_][a-z0-9_]*$/i.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

export function literal(value, type) {
  return QUOTED.has(type) ? `'${String(value).replaceAll("'", "''")}'` : String(value);
}

/** The condition that a column has a value. */
export function condition(column, value) {
  return `${written(column.name)} ${column.type.endsWith("[]") ? "CONTAINS" : "="} ${literal(value, column.type)}`;
}

/** The conditions that a filter joins by AND; null for one that has an OR outside of parentheses. */
function joined(where) {
  const parts = [""];
  let depth = 0;
  let between = false;
  for (const token of where.match(TOKEN) ?? []) {
    const said = token.toUpperCase();
    depth += (token === "(") - (token === ")");
    if (depth === 0 && said === "OR") return null;
    if (said === "BETWEEN") between = true;
    else if (said === "AND" && depth === 0 && !between) {
      parts.push("");
      continue;
    } else if (said === "AND") between = false;
    parts[parts.length - 1] += token;
  }
  return parts.map((each) => each.trim()).filter(Boolean);
}

export function has(where, one) {
  return joined(where)?.includes(one) ?? false;
}

/** The filter with the condition, or without it, if it has it. */
export function toggled(where, one) {
  const parts = joined(where) ?? [`(${where.trim()})`];
  return (parts.includes(one) ? parts.filter((each) => each !== one) : [...parts, one]).join(" AND ");
}
