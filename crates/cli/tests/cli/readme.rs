//! The README's commands print what it shows.

use std::path::PathBuf;

use crate::Workspace;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn readme() -> String {
    std::fs::read_to_string(repository().join("README.md")).unwrap()
}

/// The fenced blocks, each with its language.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language.to_string(), body.join("\n")));
        }
    }
    blocks
}

/// The commands of `program` in a block; quotes may span lines.
fn commands<'a>(block: &'a str, program: &str) -> Vec<&'a str> {
    let mut commands = Vec::new();
    let mut start = 0;
    let mut quoted = false;
    for (at, character) in block.char_indices().chain([(block.len(), '\n')]) {
        match character {
            '"' => quoted = !quoted,
            '\n' if !quoted => {
                commands.push(block[start..at].trim());
                start = at + 1;
            }
            _ => (),
        }
    }
    commands.retain(|command| command.starts_with(program));
    commands
}

/// Runs the README's `vectile` commands in order, with `vectile` on the path and the sample data
/// present; a `text` block is the expected output of the command before it.
#[test]
fn the_commands_print_what_is_shown() {
    let w = Workspace::new();
    let data = repository().join("data").canonicalize().unwrap();
    std::os::unix::fs::symlink(data, w.path("data")).unwrap();
    let bin = PathBuf::from(env!("CARGO_BIN_EXE_vectile"));
    let path = format!(
        "{}:{}",
        bin.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let (mut printed, mut ran, mut compared) = (String::new(), 0, 0);
    for (language, block) in blocks(&readme()) {
        if language == "text" {
            assert_eq!(printed.trim_end(), block);
            compared += 1;
        }
        for command in commands(&block, "vectile ") {
            let mut shell = std::process::Command::new("sh");
            shell
                .args(["-c", command])
                .current_dir(w.path(""))
                .env("PATH", &path);
            let output = shell.output().unwrap();
            assert!(output.status.success(), "{command}: {output:?}");
            printed = String::from_utf8(output.stdout).unwrap();
            ran += 1;
        }
    }
    assert!(
        ran >= 2 && compared >= 1,
        "{ran} commands, {compared} outputs"
    );
}

#[test]
fn the_first_command_is_the_demo() {
    let text = readme();
    let first = blocks(&text)
        .into_iter()
        .find(|(language, _)| language == "sh");
    assert_eq!(first.unwrap().1, "cargo run -p vectile-cli -- demo");
}

#[test]
fn the_rust_lines_are_those_of_the_example() {
    let example = std::fs::read_to_string(repository().join("examples/embed.rs")).unwrap();
    let known: Vec<&str> = example.lines().map(str::trim).collect();
    let (_, block) = blocks(&readme())
        .into_iter()
        .find(|(l, _)| l == "rust")
        .unwrap();
    for line in block.lines() {
        assert!(
            known.contains(&line.trim()),
            "examples/embed.rs has no {line}"
        );
    }
}

#[test]
fn the_links_lead_somewhere() {
    let text = readme();
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    for target in targets.filter(|target| !target.contains("://")) {
        assert!(repository().join(target).exists(), "{target}");
    }
}
