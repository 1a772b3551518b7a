//! `kind = "command"`.

use serde_json::json;

use crate::common::{Folder, TestServer, wait_until};

/// A source that runs a shell script.
fn script(script: &str, more: &str) -> String {
    format!(
        "[[source]]\nkind = \"command\"\nname = \"c\"\nchannel = \"/c\"\nrestart_pause_ms = 10\ncommand = [\"sh\", \"-c\", '''{script}''']\n{more}\n"
    )
}

fn is_running(process: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn each_line_is_a_message_json_as_it_is_and_other_text_as_a_string() {
    let (_server, mut messages) =
        TestServer::with("/c", &script(r#"printf '{"a":[1]}\n\nplain\n7\nno end'; sleep 1000"#, "")).await;
    for expected in [json!({"a": [1]}), json!("plain"), json!(7)] {
        assert_eq!(messages.data().await, expected);
    }
}

#[tokio::test]
async fn a_long_line_is_left_out_and_the_next_one_is_not() {
    let lines = r#"head -c 5000000 /dev/zero | tr '\0' x; echo; echo 12345678; echo 123456789; echo end; sleep 1000"#;
    let (server, mut messages) = TestServer::with("/c", &script(lines, "line_bytes_max = 8")).await;
    assert_eq!(messages.data().await, json!(12_345_678));
    assert_eq!(messages.data().await, json!("end"));
    assert_eq!(server.metric("errors", "c"), 2);
}

#[tokio::test]
async fn the_program_ends_with_its_whole_group_when_the_source_stops() {
    let deaf = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & echo $$; wait; sleep 1000";
    let (server, mut messages) = TestServer::with("/c", &script(deaf, "stop_ms = 100")).await;
    let processes = [messages.data().await.to_string(), messages.data().await.to_string()];
    assert!(processes.iter().all(|process| is_running(process)));
    server.stop();
    assert!(!processes.iter().any(|process| is_running(process)), "{processes:?}");
}

#[tokio::test]
async fn a_program_that_is_asked_to_end_may_say_its_last_lines() {
    let (server, mut messages) =
        TestServer::with("/c", &script("trap 'echo bye; exit' TERM; echo up; while :; do sleep 0.01; done", "")).await;
    assert_eq!(messages.data().await, json!("up"));
    server.stop();
    assert_eq!(messages.data().await, json!("bye"));
}

#[tokio::test]
async fn a_program_that_ends_runs_again_and_leaves_no_process_behind() {
    let folder = Folder::new();
    let left = folder.path("left");
    // The process left behind holds the output open.
    let (server, mut messages) =
        TestServer::with("/c", &script(&format!("sleep 1000 & echo $! >>{left}; echo run; exit 3"), "")).await;
    for _ in 0..3 {
        assert_eq!(messages.data().await, json!("run"));
    }
    server.wait_for("restarts", "c", 2).await;
    let first = std::fs::read_to_string(&left).expect("written").lines().next().expect("a line").to_string();
    wait_until("its child ends", || !is_running(&first)).await;
}

#[tokio::test]
async fn a_program_runs_again_after_the_ends_that_its_settings_name() {
    let server = TestServer::start(None).await;
    let mut messages = server.messages("/**").await;
    let source = |name: &str, script: &str, restart: &str| {
        format!(
            "[[source]]\nkind = \"command\"\nname = \"{name}\"\nrestart_pause_ms = 1\ncommand = [\"sh\", \"-c\", \"{script}\"]\nrestart = \"{restart}\"\n"
        )
    };
    let once = source("once", "echo 1; exit 1", "never") + &source("good", "echo 2", "failure");
    server.reload(&(once + &source("bad", "echo 3; exit 1", "failure") + &source("cron", "echo 4", "always")));
    for name in ["bad", "cron"] {
        server.wait_for("runs", name, 4).await;
    }
    for name in ["once", "good"] {
        assert_eq!((server.metric("runs", name), server.metric("running", name)), (1, 0), "{name}");
    }
    assert_eq!((server.metric("errors", "once"), server.metric("errors", "good")), (1, 0));
    assert_eq!(server.metric("errors", "cron"), 0);
    assert!(server.metric("errors", "bad") >= 3);
    messages.data().await;
}

#[tokio::test]
async fn errors_of_a_program_are_logged_and_never_block_it() {
    let flood = "head -c 3000000 /dev/zero | tr '\\0' e >&2; i=0; while [ $i -lt 500 ]; do echo $i >&2; i=$((i+1)); done; echo done; sleep 1000";
    let (_server, mut messages) = TestServer::with("/c", &script(flood, "")).await;
    assert_eq!(messages.data().await, json!("done"));
}

#[tokio::test]
async fn the_program_has_a_cleared_environment_and_what_the_file_names() {
    // Cargo sets the variables of this test's environment that are not among the usual ones.
    let show = r#"for name in PATH HOME CARGO_PKG_NAME CARGO_MANIFEST_DIR GREETING; do eval "echo \"$name=\${$name-none}\""; done; sleep 1000"#;
    let more = "pass = [\"CARGO_PKG_NAME\"]\nenvironment = { GREETING = \"hello\" }";
    let (_server, mut messages) = TestServer::with("/c", &script(show, more)).await;
    for (name, value) in [
        ("PATH", std::env::var("PATH").unwrap_or("none".into())),
        ("HOME", std::env::var("HOME").unwrap_or("none".into())),
        ("CARGO_PKG_NAME", "encke-sources".into()),
        ("CARGO_MANIFEST_DIR", "none".into()),
        ("GREETING", "hello".into()),
    ] {
        assert_eq!(messages.data().await, json!(format!("{name}={value}")));
    }
}
