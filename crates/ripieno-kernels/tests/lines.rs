//! Lines that match a pattern.

use regex::bytes::RegexBuilder;
use ripieno_kernels::text::{LineQuery, LineSearch};

const TEXTS: [&[u8]; 8] = [
    b"",
    b"\n",
    b"\n\n",
    b"no end",
    b"one two\nthree\n\n two one\r\nfour\nTwo",
    b"a\nb\na b\nab\n\n\nb a\n",
    b"x\0y\n\xff\xfe\nend\n\0\n",
    b"one\ntwo\nthree\n",
];

const PATTERNS: [&str; 33] = [
    "two",
    "^two",
    "two$",
    "^$",
    "",
    "$",
    "^",
    "a",
    "[^a]",
    "[^a]+b",
    "a\\s+b",
    "\\s",
    "\\n",
    "(?s)a.*b",
    "(?s).",
    "\\A\\w",
    "b\\z",
    "\\bone\\b",
    "x.y",
    "(?-u:\\xff)",
    "o|t",
    "(?:a|b)$",
    "(?i)TWO",
    "(?-m)^b",
    "e\\r?$",
    "\\W*",
    "(?R)e$",
    "(?R)^$",
    "e\nt",
    "(?s-u:e.t)|(b+){2,}",
    "\\b{start-half}t",
    "[\\n]?o\\z",
    "[^\\x00-\\x09\\x0b-\u{10ffff}]",
];

/// Return the numbers of the lines that match when searched separately.
fn expected(text: &[u8], pattern: &str, ignore_case: bool, invert: bool) -> Vec<u64> {
    let pattern = RegexBuilder::new(pattern).multi_line(true).case_insensitive(ignore_case).build().unwrap();
    let text = text.strip_suffix(b"\n").map_or((text, text.is_empty()), |lines| (lines, false));
    let lines = text.0.split(|&byte| byte == b'\n').enumerate().filter(|_| !text.1);
    lines.filter(|(_, line)| pattern.is_match(line) != invert).map(|(number, _)| number as u64).collect()
}

#[test]
fn found_lines_are_those_that_match_separately() {
    for text in TEXTS {
        for pattern in PATTERNS {
            for (ignore_case, invert) in [(false, false), (true, false), (false, true), (true, true)] {
                let search = LineSearch::new(pattern, LineQuery { fixed: false, ignore_case, invert }).unwrap();
                let want = expected(text, pattern, ignore_case, invert);
                for at_most in [0, 1, 2, usize::MAX] {
                    let found = search.find(text, at_most);
                    let case = format!("{pattern:?} in {:?}, {ignore_case} {invert}", text.escape_ascii().to_string());
                    assert_eq!(found.numbers, want[..want.len().min(at_most)], "{case}");
                    assert_eq!(search.count(text, at_most), found.numbers.len(), "{case}");
                    let lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
                    assert!(found.lines().iter().eq(found.numbers.iter().map(|&number| lines[number as usize])));
                    for (&start, line) in found.starts.iter().zip(found.lines().iter()) {
                        assert!(
                            text[start as usize..].starts_with(line)
                                && (start == 0 || text[start as usize - 1] == b'\n')
                        );
                    }
                    assert_eq!(found.line_count, lines.len() as u64 - 1);
                }
            }
        }
    }
}

#[test]
fn fixed_strings_are_not_parsed_as_expressions() {
    let find = |pattern, ignore_case| {
        let search = LineQuery { fixed: true, ignore_case, invert: false };
        LineSearch::new(pattern, search).unwrap().find(b"a.c\nabc\nA.C\n(", usize::MAX).numbers
    };
    assert_eq!(find("a.c", false), [0]);
    assert_eq!(find("a.c", true), [0, 2]);
    assert_eq!(find("(", false), [3]);
}

#[test]
fn an_invalid_pattern_is_reported_in_one_sentence() {
    let reported = |pattern| LineSearch::new(pattern, LineQuery::default()).unwrap_err().to_string();
    assert_eq!(reported("a(b"), "unclosed group, at character 2");
    assert_eq!(reported("a\n(b"), "unclosed group, at character 1 of line 2");
    assert_eq!(reported(r"\p{Nothing}"), "Unicode property not found, at character 1");
    assert_eq!(reported("(\\w{9}){999}"), "it needs more than 10485760 bytes when compiled");
}

#[test]
fn lines_are_printed_with_label_and_number() {
    let found = LineSearch::new("b", LineQuery::default()).unwrap().find(b"ab\nc\nb", usize::MAX);
    assert_eq!(found.printed(b"", None, 2), b"ab\nb\n");
    assert_eq!(found.printed(b"x:", Some(10), 2), b"x:10:ab\nx:12:b\n");
    assert_eq!(found.printed(b"", None, 1), b"ab\n");
}

#[test]
fn a_search_does_not_read_beyond_the_line_of_a_match() {
    // One search to the end of the text per line would process 10^12 bytes.
    let patterns = ["q[^z]*end", r"\{[^}]*\}|ERROR", r"(?s)\b\w.*end\z|[E\u{e9}]"];
    let n = 400_000;
    for (line, counts) in [("quote \" open\n", [0, 0, 0]), ("{ ERROR x\n", [0, n, n]), ("quote \u{e9}\n", [0, 0, n])] {
        let text = [line.repeat(n).into_bytes(), b"end".to_vec()].concat();
        for (pattern, count) in patterns.into_iter().zip(counts) {
            let search = LineSearch::new(pattern, LineQuery::default()).unwrap();
            assert_eq!(search.count(&text, usize::MAX), count, "{pattern:?} in {line:?}");
        }
    }
}
