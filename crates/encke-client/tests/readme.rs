//! The README shows the example as it is.

#[test]
fn the_program_in_the_readme_is_the_example() {
    let (readme, example) = (include_str!("../README.md"), include_str!("../examples/chat.rs"));
    let (_, program) = example.split_once("\n\n").expect("docs, then the program");
    assert!(readme.contains(program), "README.md does not show examples/chat.rs");
    assert!(example.lines().count() < 60, "it is a short program");
}
