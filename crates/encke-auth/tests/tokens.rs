//! Tokens that are accepted, and all those that are not, each with its reason.

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use encke::SessionTerms;
use encke_auth::{AuthSettings, Jwt, KeyPair, Secret, SigningKey, TokenError};
use serde_json::{Map, Value, json};

const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// The end of the year 2099.
const LATE: u64 = 4_102_444_800;

fn claims(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

fn alice() -> Map<String, Value> {
    claims(json!({"sub": "alice", "exp": LATE}))
}

fn with_secret() -> AuthSettings {
    AuthSettings { secret: Some(Secret::new(SECRET)), ..AuthSettings::default() }
}

fn signed(value: Value) -> String {
    let key = SigningKey::of_secret(SECRET.as_bytes(), None).expect("a key");
    key.token(&claims(value), None).expect("a token")
}

/// A token with this header, which claims to be signed by `signature`.
fn crafted(header: &Value, signature: &str) -> String {
    let part = |value: String| URL_SAFE_NO_PAD.encode(value);
    format!("{}.{}.{signature}", part(header.to_string()), part(Value::Object(alice()).to_string()))
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("encke-auth-{}-{name}", std::process::id()));
    fs::write(&path, text).expect("a file");
    path
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

fn verify(settings: &AuthSettings, token: &str) -> Result<encke::Identity, TokenError> {
    let jwt = Jwt::new(settings).expect("good settings");
    run(jwt.verify(token))
}

fn reason(settings: &AuthSettings, token: &str) -> &'static str {
    verify(settings, token).expect_err("a refusal").reason()
}

#[test]
fn every_kind_of_key_signs_tokens_that_are_accepted() {
    for algorithm in ["HS256", "HS384", "HS512", "EdDSA", "ES256", "ES384", "RS256", "RS512", "PS256", "PS384"] {
        let pair = KeyPair::generate(algorithm).expect(algorithm);
        let mut settings = vec![AuthSettings::default()];
        let key = match (&pair.public, &pair.jwks) {
            (Some(public), Some(jwks)) => {
                settings.push(AuthSettings::default());
                settings[0].public_key_files = vec![file(&format!("{algorithm}.pem"), public)];
                settings[1].jwks_file = Some(file(&format!("{algorithm}.json"), jwks));
                SigningKey::of_pem(pair.private.as_bytes(), Some(algorithm)).expect(algorithm)
            }
            _ => {
                settings[0].secret_file = Some(file(&format!("{algorithm}.secret"), &format!("{}\n", pair.private)));
                SigningKey::of_secret(pair.private.as_bytes(), Some(algorithm)).expect(algorithm)
            }
        };
        let token = key.token(&alice(), key.kid().as_deref()).expect("a token");
        for settings in settings {
            assert_eq!(&*verify(&settings, &token).expect(algorithm).user, "alice");
            let (begin, end) = token.split_at(token.len() - 10);
            let other = if end.starts_with('A') { "B" } else { "A" };
            let forged = format!("{begin}{other}{}", &end[1..]);
            assert_eq!(reason(&settings, &forged), "token_signature_wrong", "{algorithm}");
        }
    }
}

#[test]
fn an_unsigned_token_is_refused() {
    for alg in ["none", "None", "NONE"] {
        for signature in ["", "AAAA"] {
            assert_eq!(reason(&with_secret(), &crafted(&json!({"alg": alg}), signature)), "token_unsigned");
        }
    }
}

#[test]
fn a_public_key_is_never_a_secret() {
    let pair = KeyPair::generate("RS256").expect("a pair");
    let public = pair.public.expect("a public key");
    let settings = AuthSettings { public_key_files: vec![file("confused.pem", &public)], ..AuthSettings::default() };
    let key = SigningKey::of_secret(public.as_bytes(), None).expect("a key");
    assert_eq!(reason(&settings, &key.token(&alice(), None).expect("a token")), "token_algorithm_refused");
}

#[test]
fn a_key_signs_only_by_the_algorithms_of_its_kind() {
    let pair = KeyPair::generate("ES256").expect("a pair");
    let public = file("es256.pem", &pair.public.expect("a public key"));
    let settings = AuthSettings { public_key_files: vec![public.clone()], ..AuthSettings::default() };
    for alg in ["ES384", "EdDSA", "RS256", "HS256", "ES512", "XX", ""] {
        assert_eq!(reason(&settings, &crafted(&json!({"alg": alg}), "AAAA")), "token_algorithm_refused", "{alg}");
    }
    let narrowed = AuthSettings { secret: Some(Secret::new(SECRET)), algorithms: vec!["HS512".into()], ..settings };
    let error = Jwt::new(&narrowed).expect_err("no algorithm is left for the key").to_string();
    assert!(error.contains("auth.public_key_files") && error.contains("es256.pem"), "{error}");
    let narrowed = AuthSettings { public_key_files: Vec::new(), ..narrowed };
    assert_eq!(reason(&narrowed, &signed(json!({"sub": "a", "exp": LATE}))), "token_algorithm_refused");
}

#[test]
fn times_are_checked_with_some_leeway() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let check = |value: Value| verify(&with_secret(), &signed(value));
    assert_eq!(check(json!({"sub": "a", "exp": now - 100})).expect_err("expired").reason(), "token_expired");
    assert_eq!(check(json!({"sub": "a", "exp": 0})).expect_err("expired").reason(), "token_expired");
    let in_leeway = check(json!({"sub": "a", "exp": now - 5, "nbf": now + 5})).expect("within the leeway");
    assert_eq!(in_leeway.expires_ms, Some((now + 25) * 1_000));
    let early = check(json!({"sub": "a", "exp": LATE, "nbf": now + 100})).expect_err("not yet valid");
    assert_eq!(early.reason(), "token_not_yet_valid");
    assert_eq!(check(json!({"sub": "a"})).expect_err("no end").reason(), "token_claim_wrong");
    for exp in [json!("4102444800"), json!(-1), json!(null), json!([LATE]), json!(true)] {
        assert_eq!(check(json!({"sub": "a", "exp": exp})).expect_err("no time").reason(), "token_claim_wrong");
    }
    assert!(check(json!({"sub": "a", "exp": 1e300})).is_ok());
    let endless = AuthSettings { expiry_required: false, ..with_secret() };
    assert_eq!(verify(&endless, &signed(json!({"sub": "a"}))).expect("no end needed").expires_ms, None);
}

#[test]
fn audience_and_issuer_are_checked() {
    let token = |aud: Value, iss: &str| signed(json!({"sub": "a", "exp": LATE, "aud": aud, "iss": iss}));
    let named = AuthSettings { audience: vec!["push".into()], issuer: vec!["login".into()], ..with_secret() };
    assert!(verify(&named, &token(json!("push"), "login")).is_ok());
    assert!(verify(&named, &token(json!(["shop", "push"]), "login")).is_ok());
    assert_eq!(reason(&named, &token(json!("shop"), "login")), "token_audience_refused");
    assert_eq!(reason(&named, &token(json!([]), "login")), "token_audience_refused");
    assert_eq!(reason(&named, &token(json!(["push", 7]), "login")), "token_claim_wrong");
    assert_eq!(reason(&named, &token(json!("push"), "other")), "token_issuer_refused");
    assert_eq!(reason(&named, &signed(json!({"sub": "a", "exp": LATE, "iss": "login"}))), "token_audience_refused");
    assert_eq!(reason(&named, &signed(json!({"sub": "a", "exp": LATE, "aud": "push"}))), "token_issuer_refused");
    // A token that names an audience is only for it.
    assert_eq!(reason(&with_secret(), &token(json!("shop"), "any")), "token_audience_refused");
}

#[test]
fn claims_become_rights_and_limits() {
    let token = signed(json!({
        "sub": 42, "exp": LATE, "jti": "t1", "subscribe": ["/news/**", "/me"], "publish": "/chat/*",
        "limits": {"messages_per_s_max": 5}, "session_terms": {"timeout_ms": 50_000, "broadcast_to_publisher": false},
    }));
    let identity = verify(&with_secret(), &token).expect("accepted");
    assert_eq!((&*identity.user, identity.token_id.as_deref()), ("42", Some("t1")));
    assert!(identity.may_subscribe("/news/a") && !identity.may_subscribe("/chat/a"));
    assert!(identity.may_publish("/chat/a") && !identity.may_publish("/news/a"));
    assert_eq!(identity.limits.messages_per_s_max, Some(5));
    let terms =
        SessionTerms { timeout_ms: Some(50_000), broadcast_to_publisher: Some(false), ..SessionTerms::default() };
    assert_eq!(identity.terms.as_deref(), Some(&terms));
    assert!(identity.claims.contains("\"jti\":\"t1\""));
    let named = AuthSettings { user_claim: "https://a.example/name".into(), ..with_secret() };
    let token = signed(json!({"https://a.example/name": "bob", "exp": LATE}));
    assert_eq!(&*verify(&named, &token).expect("accepted").user, "bob");
    let strict = AuthSettings { channel_claims_required: true, ..with_secret() };
    assert!(!verify(&strict, &signed(json!({"sub": "a", "exp": LATE}))).expect("accepted").may_subscribe("/news"));
}

#[test]
fn claims_of_a_wrong_type_give_no_rights() {
    for wrong in [
        json!({"subscribe": null}),
        json!({"subscribe": [1]}),
        json!({"subscribe": ["news"]}),
        json!({"publish": {"/a": true}}),
        json!({"publish": ["/a/**/b"]}),
        json!({"limits": 5}),
        json!({"limits": {"messages_per_s_max": -1}}),
        json!({"session_terms": true}),
        json!({"session_terms": {"timeout": 5}}),
        json!({"session_terms": {"timeout_ms": 0}}),
        json!({"session_terms": {"interval_ms": 1e13}}),
        json!({"sub": ""}),
        json!({"sub": null}),
        json!({"sub": "a\nb"}),
        json!({"sub": "x".repeat(256)}),
        json!({"jti": 7}),
    ] {
        let mut all = alice();
        all.extend(claims(wrong.clone()));
        assert_eq!(reason(&with_secret(), &signed(Value::Object(all))), "token_claim_wrong", "{wrong}");
    }
}

#[test]
fn texts_that_are_no_token_are_refused() {
    let good = signed(json!({"sub": "a", "exp": LATE}));
    let (head, rest) = good.split_once('.').expect("parts");
    let array = URL_SAFE_NO_PAD.encode("[]");
    let duplicate = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","alg":"none"}"#);
    for token in [
        "",
        ".",
        "..",
        "a.b",
        "not a token",
        &format!("{good}.x"),
        &format!("{array}.{rest}"),
        &format!("{duplicate}.{rest}"),
        &format!("{head}=.{rest}"),
        &good.replace('.', ""),
        "\u{1F512}.\u{1F512}.\u{1F512}",
        &crafted(&json!({"alg": "HS256", "crit": ["b64"], "b64": false}), "AAAA"),
        &crafted(&json!({"alg": 256}), "AAAA"),
        &crafted(&json!({"alg": "HS256", "kid": {}}), "AAAA"),
    ] {
        assert_eq!(reason(&with_secret(), token), "token_malformed", "{token}");
    }
    let key = SigningKey::of_secret(&[7; 64], None).expect("a key");
    assert_eq!(reason(&with_secret(), &key.token(&alice(), None).expect("a token")), "token_signature_wrong");
}

#[test]
fn a_token_of_a_mebibyte_is_refused_before_it_is_read() {
    let token = signed(json!({"sub": "a", "exp": LATE, "padding": "x".repeat(1024 * 1024)}));
    let error = verify(&with_secret(), &token).expect_err("too long");
    assert!(matches!(error, TokenError::TooLong { token_bytes_max: 8_192, .. }), "{error}");
    let roomy = AuthSettings { token_bytes_max: 2 * 1024 * 1024, ..with_secret() };
    assert!(verify(&roomy, &token).is_ok());
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let refusal = |settings: AuthSettings| Jwt::new(&settings).expect_err("refused").to_string();
    let default = AuthSettings::default;
    let private = KeyPair::generate("EdDSA").expect("a pair").private;
    for (settings, expected) in [
        (default(), "a key is needed"),
        (AuthSettings { secret: Some(Secret::new("short")), ..default() }, "auth.secret = ***: the secret has 5 bytes"),
        (AuthSettings { secret_file: Some("missing".into()), ..default() }, "auth.secret_file = \"missing\": No such"),
        (AuthSettings { secret_env: Some("ENCKE_NO_SUCH".into()), ..default() }, "auth.secret_env"),
        (AuthSettings { public_key_files: vec![file("private.pem", &private)], ..default() }, "this is a private key"),
        (AuthSettings { public_key_files: vec![file("text.pem", "text")], ..default() }, "not a public key"),
        (AuthSettings { jwks_file: Some(file("useless.json", r#"{"keys":[{}]}"#)), ..default() }, "no key of the set"),
        (AuthSettings { jwks_url: Some("ftp://a".into()), ..default() }, "auth.jwks_url = \"ftp://a\": a URL"),
        (AuthSettings { algorithms: vec!["none".into()], ..with_secret() }, "auth.algorithms = \"none\": HS256"),
        (AuthSettings { anonymous_subscribe: Some(vec!["a".into()]), ..with_secret() }, "auth.anonymous_subscribe"),
    ] {
        let error = refusal(settings);
        assert!(error.contains(expected), "{error} should contain {expected}");
    }
    assert!(!format!("{:?}", with_secret()).contains(SECRET), "no log shows the secret");
}

#[test]
fn a_misspelt_limit_refuses_the_token_and_the_error_names_it() {
    let token = |limits: Value| signed(json!({"sub": "alice", "exp": LATE, "limits": limits}));
    assert!(verify(&with_secret(), &token(json!({"messages_per_s_max": 5}))).is_ok());
    for limits in [json!({"message_per_s_max": 5}), json!({"messages_per_s_max": "5"}), json!([5, 5, 5]), json!(5)] {
        let error = verify(&with_secret(), &token(limits.clone())).expect_err("refused");
        assert_eq!(error.reason(), "token_claim_wrong");
        assert!(error.to_string().starts_with("the claim limits: "), "{error}");
    }
    let error = verify(&with_secret(), &token(json!({"message_per_s_max": 5}))).expect_err("refused").to_string();
    assert!(error.contains("message_per_s_max") && error.contains("messages_per_s_max"), "{error}");
}
