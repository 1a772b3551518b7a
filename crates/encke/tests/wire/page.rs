//! Pages that name tests: each named test exists.

/// The pages, the least number of tests each names, and the directories of these tests.
const PAGES: [(&str, usize); 3] = [
    (include_str!("../../../../docs/contributing/bad-input.md"), 150),
    (include_str!("../../../../docs/contributing/tests.md"), 15),
    (include_str!("../../../../docs/delivery.md"), 30),
];
/// Tests of the core and over sockets may have one name for their module.
const FILES: &[(&str, &str)] = &[
    ("ack", include_str!("ack.rs")),
    ("acknowledging", include_str!("../../../encke-cli/tests/cluster/acknowledging.rs")),
    ("api::durable", include_str!("api/durable.rs")),
    ("api::input", include_str!("api/input.rs")),
    ("api::keys", include_str!("api/keys.rs")),
    ("api::lists", include_str!("api/lists.rs")),
    ("api::publish", include_str!("api/publish.rs")),
    ("bayeux_messages", include_str!("bayeux_messages.rs")),
    ("bounds", include_str!("../../../encke-core/src/tests/bounds.rs")),
    ("channel_names", include_str!("channel_names.rs")),
    ("clients", include_str!("limits/clients.rs")),
    ("clusters", include_str!("../../../simulator/tests/clusters.rs")),
    ("command", include_str!("../../../encke-sources/tests/wire/command.rs")),
    ("compression", include_str!("compression.rs")),
    ("deflate::tests", include_str!("../../../websocket/src/deflate.rs")),
    ("extension::tests", include_str!("../../../websocket/src/extension.rs")),
    ("damage", include_str!("../../../journal/tests/damage.rs")),
    ("durable", include_str!("durable.rs")),
    ("edges", include_str!("../../../encke-core/src/tests/edges.rs")),
    ("file_descriptors", include_str!("../file_descriptors.rs")),
    ("format::tests", include_str!("../../../encke-core/src/delivery/outbox/format.rs")),
    ("file", include_str!("../../../encke-sources/tests/wire/file.rs")),
    ("files", include_str!("files.rs")),
    ("files", include_str!("files/conditions.rs")),
    ("files", include_str!("files/memory.rs")),
    ("files", include_str!("files/pages.rs")),
    ("range::tests", include_str!("../../src/files/range.rs")),
    ("listing::tests", include_str!("../../src/files/listing.rs")),
    ("floods", include_str!("floods.rs")),
    ("full_disk", include_str!("../../../encke-cli/tests/full_disk.rs")),
    ("handover", include_str!("../../../encke-cli/tests/handover.rs")),
    ("histories", include_str!("../../../encke-cli/tests/cluster/histories.rs")),
    ("journal", include_str!("../../../encke-cli/tests/cluster/journal.rs")),
    ("hostile_servers", include_str!("../../../encke-fetch/tests/hostile/main.rs")),
    ("guard", include_str!("guard.rs")),
    ("grip", include_str!("../../../encke-proxy/tests/grip/main.rs")),
    ("grip::strangers", include_str!("../../../encke-proxy/tests/grip/strangers.rs")),
    ("path::tests", include_str!("../../../encke-proxy/src/path.rs")),
    ("room::tests", include_str!("../../../encke-proxy/src/room.rs")),
    ("held", include_str!("held.rs")),
    ("hold", include_str!("hold.rs")),
    ("hold_rust", include_str!("hold_rust.rs")),
    ("in_process", include_str!("in_process.rs")),
    ("hosts", include_str!("hosts.rs")),
    ("http_requests", include_str!("http_requests.rs")),
    ("jsonp", include_str!("jsonp.rs")),
    ("jwks", include_str!("../../../encke-auth/tests/jwks.rs")),
    ("jwks_tests", include_str!("../../../encke-auth/src/jwks_tests.rs")),
    ("store", include_str!("../../../encke-store/src/tests.rs")),
    ("kill", include_str!("../../../encke-cli/tests/kill.rs")),
    ("limits", include_str!("limits.rs")),
    ("logs", include_str!("../logs.rs")),
    ("long_polling", include_str!("long_polling.rs")),
    ("mail", include_str!("../../../encke-sources/tests/wire/mail.rs")),
    ("official_clients", include_str!("../../../encke-cli/tests/cluster/official_clients.rs")),
    ("origins", include_str!("origins.rs")),
    ("newcomers", include_str!("../../../encke-core/src/tests/newcomers.rs")),
    ("proxies", include_str!("proxies.rs")),
    ("proxy_head::tests", include_str!("../../src/byte_stream/proxy_head.rs")),
    ("quotes", include_str!("../../../encke-sources/tests/wire/quotes.rs")),
    ("request_client::tests", include_str!("../../src/request_client.rs")),
    ("responses", include_str!("../../../encke-core/src/tests/responses.rs")),
    ("rates", include_str!("limits/rates.rs")),
    ("replay", include_str!("replay.rs")),
    ("restarts", include_str!("restarts.rs")),
    ("revocations", include_str!("../../../encke-cli/tests/program/revocations.rs")),
    ("rights", include_str!("rights.rs")),
    ("secrets", include_str!("../../../encke-cli/tests/program/secrets.rs")),
    ("session_names::tests", include_str!("../../src/session_names.rs")),
    ("streams", include_str!("../../../encke-cli/tests/cluster/streams.rs")),
    ("streams", include_str!("streams.rs")),
    ("table_of_rights", include_str!("../../../encke-core/src/tests/rights.rs")),
    ("sources", include_str!("../../../encke-sources/tests/wire/restarts.rs")),
    ("sources", include_str!("../../../encke-cli/tests/program/sources.rs")),
    ("seeds", include_str!("../../../simulator/tests/seeds.rs")),
    ("sessions", include_str!("sessions.rs")),
    ("shares", include_str!("../../../encke-core/src/tests/shares.rs")),
    ("shard_ack", include_str!("../../../encke-core/src/tests/ack.rs")),
    ("slow_consumers", include_str!("slow_consumers.rs")),
    ("steps", include_str!("../../../encke-core/src/tests/steps.rs")),
    ("store_panic", include_str!("../store_panic.rs")),
    ("tls", include_str!("tls.rs")),
    ("tls_clients", include_str!("tls_clients.rs")),
    ("tls_floods", include_str!("tls_floods.rs")),
    ("tokens", include_str!("../../../encke-auth/tests/tokens.rs")),
    ("tokens_of_sessions", include_str!("../../../encke-auth/tests/sessions.rs")),
    ("transports", include_str!("transports.rs")),
    ("unread", include_str!("unread.rs")),
    ("pending_replies", include_str!("../../../encke-core/src/tests/pending_replies.rs")),
    ("websocket_frames", include_str!("websocket_frames.rs")),
    ("withdrawals", include_str!("../../../encke-core/src/tests/withdrawals.rs")),
    ("session_attributes", include_str!("session_attributes.rs")),
    ("session_terms", include_str!("session_terms.rs")),
    ("commands", include_str!("../../../encke-cli/tests/cluster/commands.rs")),
    ("ending", include_str!("../../../encke-core/src/tests/ending.rs")),
    ("carried", include_str!("../../../encke-core/src/tests/carried.rs")),
    ("moves", include_str!("../../../encke-core/src/tests/moves.rs")),
    ("presence", include_str!("presence.rs")),
    ("presence", include_str!("../../../encke-core/src/tests/presence.rs")),
    ("decisions", include_str!("decisions.rs")),
    ("decisions", include_str!("../../../encke-core/src/tests/decisions.rs")),
    ("identity", include_str!("../../../encke-core/src/tests/identity.rs")),
    ("hooks", include_str!("hooks.rs")),
    ("late", include_str!("hooks/late.rs")),
    ("beside", include_str!("beside.rs")),
    ("failures", include_str!("../../../encke-webhooks/tests/wire/failures.rs")),
    ("delivery", include_str!("../../../encke-webhooks/tests/wire/delivery.rs")),
    ("queue::tests", include_str!("../../../encke-webhooks/src/queue/tests.rs")),
    ("log_record::tests", include_str!("../../../encke-core/src/history/log_record.rs")),
    ("breaker::tests", include_str!("../../../encke-webhooks/src/breaker.rs")),
    ("settings::tests", include_str!("../../../encke-webhooks/src/settings.rs")),
    ("answer::tests", include_str!("../../../encke-webhooks/src/answer.rs")),
];

#[test]
fn every_test_named_in_a_page_exists() {
    for (page, least) in PAGES {
        let names = page.split('`').filter_map(|quoted| quoted.rsplit_once("::"));
        let mut found = 0;
        for (file, test) in names {
            // Error texts, Rust paths and modules of tests are quoted the same way.
            if test == "tests" || !file.bytes().all(|byte| byte.is_ascii_lowercase() || b"_:".contains(&byte)) {
                continue;
            }
            let mut texts = FILES.iter().filter(|(name, _)| *name == file).map(|(_, text)| text).peekable();
            assert!(texts.peek().is_some(), "{file}::{test}: no such file in FILES");
            let (name, begin) =
                (format!("fn {test}() {{"), ["#[test]\n", "#[tokio::test]\nasync ", "= true)]\nasync "]);
            // Unit tests are in a module, one level in.
            let has_test = |text: &str| begin.iter().any(|begin| text.contains(&format!("{begin}{name}")));
            assert!(texts.any(|text| has_test(text) || has_test(&text.replace("\n    ", "\n"))), "{file}::{test}");
            found += 1;
        }
        assert!(found >= least, "{found}");
    }
}
