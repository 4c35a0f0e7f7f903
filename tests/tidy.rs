//! Keeps the rules that the compiler does not: import directions, sizes, registries, references.

#![allow(
    clippy::unwrap_used,
    reason = "this is all test code, helpers included"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Who may import whom; everybody may use the leaves. `cli` may use everything.
const IMPORTS: &[(&str, &[&str])] = &[
    ("analysis", &["record", "session"]),
    ("catalog", &["driver", "record", "workload"]),
    ("dataset", &["record", "session", "workload"]),
    ("driver", &["record", "session", "workload"]),
    ("host", &["record", "session"]),
    ("observe", &["record", "session"]),
    ("plan", &["catalog", "record"]),
    ("record", &["session"]),
    ("report", &["analysis", "record"]),
    ("session", &["wire"]),
    ("target", &["record", "session"]),
    ("wire", &[]),
    ("workload", &["record", "session"]),
];
const LEAVES: &[&str] = &["clock", "interrupt", "problem", "rng", "units"];
const FILE_LINES_MAX: usize = 600;
const LINE_WIDTH_MAX: usize = 100;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(below: &str, extension: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut queue = vec![root().join(below)];
    while let Some(path) = queue.pop() {
        if path.is_dir() {
            queue.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if path.extension().is_some_and(|e| e == extension) {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path.strip_prefix(root()).unwrap().to_owned(), text));
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no .{extension} below {below}");
    found
}

/// The module below `src` that a file belongs to.
fn module(path: &Path) -> String {
    let first = path
        .strip_prefix("src")
        .unwrap()
        .components()
        .next()
        .unwrap();
    first
        .as_os_str()
        .to_str()
        .unwrap()
        .trim_end_matches(".rs")
        .to_owned()
}

/// The part of a file above its unit tests.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or(text)
}

fn is_test_file(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|n| n == "tests.rs" || n == "fixture.rs")
}

/// The modules that `text` names after `crate::`, single or in braces.
fn imported(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut add = |name: &str| {
        let name: String = name
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if !name.is_empty() {
            names.insert(name);
        }
    };
    let code: String = text
        .lines()
        .filter(|l| !l.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => {
                let mut depth = 0;
                let mut item = String::new();
                for c in list.chars() {
                    match c {
                        '}' if depth == 0 => break,
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 0 => {
                            add(item.trim());
                            item.clear();
                            continue;
                        }
                        _ => {}
                    }
                    item.push(c);
                }
                add(item.trim());
            }
            None => add(rest),
        }
    }
    names
}

#[test]
fn imports_go_one_way() {
    let table: BTreeMap<&str, &[&str]> = IMPORTS.iter().copied().collect();
    let mut wrong = Vec::new();
    for (path, text) in files("src", "rs") {
        let module = module(&path);
        if ["lib", "main", "cli"].contains(&module.as_str()) || is_test_file(&path) {
            continue;
        }
        if LEAVES.contains(&module.as_str()) {
            let others: Vec<String> = imported(without_tests(&text))
                .into_iter()
                .filter(|n| !LEAVES.contains(&n.as_str()))
                .collect();
            if !others.is_empty() {
                wrong.push(format!(
                    "{} is a leaf and imports {others:?}",
                    path.display()
                ));
            }
            continue;
        }
        let Some(allowed) = table.get(module.as_str()) else {
            wrong.push(format!("{module} is not in the import table"));
            continue;
        };
        for name in imported(without_tests(&text)) {
            let fine = name == module
                || LEAVES.contains(&name.as_str())
                || allowed.contains(&name.as_str())
                || !table.contains_key(name.as_str()) && name != "cli";
            if !fine {
                wrong.push(format!("{} imports {name}", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "against the import table:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_import_table_stands_in_the_architecture() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (module, allowed) in IMPORTS {
        let list: Vec<String> = allowed.iter().map(|a| format!("`{a}`")).collect();
        let list = if list.is_empty() {
            "–".to_owned()
        } else {
            list.join(", ")
        };
        let row = format!("| `{module}` | {list} |");
        assert!(text.contains(&row), "ARCHITECTURE.md lacks the row {row}");
    }
}

#[test]
fn files_are_short_enough_to_read() {
    let mut long = Vec::new();
    for (path, text) in files("src", "rs") {
        let lines = without_tests(&text).lines().count();
        if lines > FILE_LINES_MAX && !is_test_file(&path) {
            long.push(format!("{}: {lines}", path.display()));
        }
    }
    assert!(
        long.is_empty(),
        "more than {FILE_LINES_MAX} lines without tests:\n{}",
        long.join("\n")
    );
}

#[test]
fn lines_fit_on_a_screen() {
    let mut wide = Vec::new();
    for (path, text) in files("src", "rs") {
        for (number, line) in text.lines().enumerate() {
            // Text in quotes and links cannot always be folded.
            let fixed = line.contains('"') || line.contains("http");
            if line.chars().count() > LINE_WIDTH_MAX && !fixed {
                wide.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(
        wide.is_empty(),
        "wider than {LINE_WIDTH_MAX}:\n{}",
        wide.join("\n")
    );
}

#[test]
fn every_module_says_what_it_is() {
    for (path, text) in files("src", "rs") {
        assert!(
            text.starts_with("//!"),
            "{} has no module documentation",
            path.display()
        );
    }
}

#[test]
fn nothing_is_left_to_be_done_without_saying_where() {
    for (path, text) in files("src", "rs") {
        for (number, line) in text.lines().enumerate() {
            for word in [
                concat!("todo", "!("),
                concat!("unimplemented", "!("),
                "FIXME",
                "XXX",
            ] {
                assert!(
                    !line.contains(word),
                    "{}:{} has {word}",
                    path.display(),
                    number + 1
                );
            }
        }
    }
}

#[test]
fn the_registry_of_workloads_is_sorted_and_documented() {
    let names: Vec<&str> = pgdyno::catalog::WORKLOADS.iter().map(|w| w.name).collect();
    assert!(names.is_sorted(), "{names:?}");
    for entry in pgdyno::catalog::WORKLOADS {
        assert!(!entry.summary.is_empty(), "{} has no summary", entry.name);
        let page = root()
            .join("docs/workloads")
            .join(format!("{}.md", entry.name));
        assert!(page.exists(), "{} is missing", page.display());
    }
}

/// Generated pages are what the program would generate; `UPDATE_DOCS=1` writes them.
#[test]
fn generated_references_are_up_to_date() {
    for (name, wanted) in [
        ("docs/reference/cli.md", pgdyno::cli::reference()),
        (
            "docs/reference/run.schema.json",
            pgdyno::report::json::schema(),
        ),
        (
            "docs/reference/verdicts.md",
            pgdyno::analysis::verdicts::reference(),
        ),
    ] {
        let path = root().join(name);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::File::create(&path)
                .and_then(|mut f| std::io::Write::write_all(&mut f, wanted.as_bytes()))
                .unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == wanted,
            "{name} is out of date: UPDATE_DOCS=1 cargo test --test tidy"
        );
    }
}

#[test]
fn links_in_the_documentation_lead_somewhere() {
    let mut dead = Vec::new();
    let mut pages = files("docs", "md");
    for name in ["README.md", "ARCHITECTURE.md", "STYLE.md", "CHANGELOG.md"] {
        pages.push((
            PathBuf::from(name),
            fs::read_to_string(root().join(name)).unwrap(),
        ));
    }
    for (path, text) in pages {
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            let target = root().join(&path).parent().unwrap().join(file);
            if !target.exists() {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}
