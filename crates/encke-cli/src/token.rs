//! `encke token`: makes tokens and keys, and checks tokens as a server would.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use encke::{Patterns, SessionLimits};
use encke_auth::{AuthSettings, Jwt, KeyPair, SigningKey};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::logs::Escaped;
use crate::{FAILED, USAGE, args, complain, config_command};

/// The command line.
pub(crate) fn command() -> Command {
    let path = |name: &'static str| Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf));
    let text = |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    let list = |name: &'static str, value: &'static str| text(name, value).action(ArgAction::Append);
    let channels = |name: &'static str| list(name, "CHANNEL").value_parser(parse_channel);
    let secret_file = path("secret-file").help("A file with the secret, for HMAC");
    let secret_env = text("secret-env", "NAME").help("The environment variable with the secret, for HMAC");
    Command::new("token")
        .about("Make and check tokens (JWT) for the section [auth] of the configuration, and their keys")
        .arg_required_else_help(true)
        .subcommand_required(true)
        .subcommand(
            Command::new("make")
                .about("Print a new token for a user")
                .arg(Arg::new("user").value_name("USER").required(true).help("The name of the user (sub)"))
                .arg(path("key").help("A private key in PEM form (PKCS #8)"))
                .arg(secret_file.clone())
                .arg(secret_env.clone())
                .group(ArgGroup::new("signer").args(["key", "secret-file", "secret-env"]).required(true))
                .arg(text("algorithm", "NAME").help("The algorithm; without it that of the key, RS256 or HS256"))
                .arg(
                    text("expires", "TIME")
                        .value_parser(parse_time)
                        .default_value("1h")
                        .help("The time after which it ends: a number and s, m, h or d"),
                )
                .arg(channels("subscribe").help("A channel or pattern to subscribe to; without any, all"))
                .arg(channels("publish").help("A channel or pattern to publish to; without any, all"))
                .arg(list("audience", "NAME").help("A server that it is for (aud)"))
                .arg(text("issuer", "NAME").help("Its issuer (iss)"))
                .arg(text("id", "ID").help("Its id, by which it can be revoked (jti); without it, a random one"))
                .arg(
                    list("claim", "NAME=JSON")
                        .value_parser(parse_claim)
                        .help("Any other claim, such as 'limits={\"messages_per_s_max\":5}'"),
                )
                .arg(
                    text("kid", "ID")
                        .help("The name of the key; without it, the thumbprint of a key that is no secret"),
                ),
        )
        .subcommand(
            Command::new("check")
                .about("Check a token as a server would, and print its claims; exit code 1 if it is refused")
                .arg(Arg::new("token").value_name("TOKEN").help("The token; without it, standard input"))
                .arg(path("file").long("config").help("The file whose section [auth] decides [default: encke.toml]"))
                .arg(path("public-key").help("A public key in PEM form, instead of those of the file"))
                .arg(path("jwks").help("A file with a set of keys, instead of those of the file"))
                .arg(secret_file)
                .arg(secret_env)
                .group(ArgGroup::new("keys").args(["public-key", "jwks", "secret-file", "secret-env"]))
                .arg(list("audience", "NAME").help("A name of the server, if the token must be for it")),
        )
        .subcommand(
            Command::new("keys")
                .about("Make a pair of keys with the set of keys (JWKS) for the server, or a secret; never overwrites")
                .arg(
                    Arg::new("algorithm")
                        .value_name("ALGORITHM")
                        .default_value("EdDSA")
                        .help("EdDSA, ES256, ES384, RS256 … PS512, or HS256, HS384, HS512 for a secret"),
                )
                .arg(text("out", "NAME").default_value("token").help(
                    "The beginning of the files: NAME.private.pem, NAME.public.pem, NAME.jwks.json; or NAME.secret",
                )),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    let done = match matches.subcommand() {
        Some(("make", matches)) => make(matches),
        Some(("check", matches)) => return check(matches),
        Some(("keys", matches)) => keys(matches),
        _ => return ExitCode::from(USAGE),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            complain(&problem);
            ExitCode::from(FAILED)
        }
    }
}

fn make(matches: &ArgMatches) -> Result<(), String> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let key = signer(matches)?;
    let mut claims = Map::new();
    let mut put = |name: &str, value: Value| drop(claims.insert(name.into(), value));
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let expires_s: u64 = matches.get_one("expires").copied().unwrap_or_default();
    put("sub", text("user").unwrap_or_default().into());
    put("iat", now_s.into());
    put("exp", now_s.saturating_add(expires_s).into());
    put("jti", text("id").map_or_else(random_id, |id| Ok(id.to_string()))?.into());
    for (name, option) in [("subscribe", "subscribe"), ("publish", "publish"), ("aud", "audience")] {
        if let Some(values) = matches.get_many::<String>(option) {
            put(name, values.cloned().collect());
        }
    }
    if let Some(issuer) = text("issuer") {
        put("iss", issuer.into());
    }
    for (name, value) in matches.get_many::<(String, Value)>("claim").into_iter().flatten() {
        check_claim(name, value)?;
        put(name, value.clone());
    }
    let kid = text("kid").map(String::from).or_else(|| key.kid());
    let token = key.token(&claims, kid.as_deref()).map_err(|error| error.to_string())?;
    println!("{token}");
    Ok(())
}

/// The key that signs.
fn signer(matches: &ArgMatches) -> Result<SigningKey, String> {
    let algorithm = matches.get_one::<String>("algorithm").map(String::as_str);
    let located = |name: &dyn Display, error: &dyn Display| format!("{name}: {error}");
    let read = |path: &Path| std::fs::read(path).map_err(|error| located(&path.display(), &error));
    let (name, key) = if let Some(path) = matches.get_one::<PathBuf>("key") {
        (path.display().to_string(), SigningKey::of_pem(&read(path)?, algorithm))
    } else if let Some(path) = matches.get_one::<PathBuf>("secret-file") {
        let secret = read(path)?;
        // As the server reads it.
        let secret =
            secret.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(&secret[..0], |end| &secret[..=end]);
        (path.display().to_string(), SigningKey::of_secret(secret, algorithm))
    } else {
        let name = matches.get_one::<String>("secret-env").cloned().unwrap_or_default();
        let secret = std::env::var(&name).map_err(|error| located(&name, &error))?;
        (name, SigningKey::of_secret(secret.as_bytes(), algorithm))
    };
    key.map_err(|error| located(&name, &error))
}

fn random_id() -> Result<String, String> {
    let secret = KeyPair::generate("HS256").map_err(|error| error.to_string())?.private;
    Ok(secret.chars().take(22).collect())
}

fn check(matches: &ArgMatches) -> ExitCode {
    let settings = match check_settings(matches) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let token = match matches.get_one::<String>("token") {
        Some(token) => token.clone(),
        None => {
            let mut token = String::new();
            if let Err(error) = std::io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut token) {
                complain(&format_args!("standard input: {error}"));
                return ExitCode::from(FAILED);
            }
            token.trim().into()
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let jwt = Jwt::new(&settings).map_err(|error| error.to_string());
    let (jwt, runtime) = match (jwt, runtime) {
        (Ok(jwt), Ok(runtime)) => (jwt, runtime),
        (Err(problem), _) => {
            complain(&problem);
            return ExitCode::from(USAGE);
        }
        (_, Err(error)) => {
            complain(&error);
            return ExitCode::from(FAILED);
        }
    };
    if let Some((header, claims)) = encke_auth::unverified(&token) {
        // Nobody has signed them yet.
        println!("{}\n{}", Escaped(header), Escaped(claims));
    }
    match runtime.block_on(jwt.verify(&token)) {
        Ok(identity) => {
            println!("accepted: user {}{}", identity.user, end_of(&identity));
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&format_args!("refused: {error}; a client gets {}", error.reason()));
            ExitCode::from(FAILED)
        }
    }
}

/// The time that is left to a token.
fn end_of(identity: &encke::Identity) -> String {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    match identity.expires_ms {
        Some(end_ms) => format!(", for {} s more with the leeway", end_ms.saturating_sub(now_ms) / 1_000),
        None => ", without end".into(),
    }
}

/// The settings of the file, with other keys if some are given.
fn check_settings(matches: &ArgMatches) -> Result<AuthSettings, ExitCode> {
    let has_keys = matches.contains_id("keys");
    let sources = args::check_sources(matches);
    let of_file = match sources.read() {
        Ok(config) => config.sections.auth,
        Err(problems) if !has_keys || sources.file.is_some() => return Err(config_command::complain_all(&problems)),
        Err(_) => None,
    };
    let mut settings = match of_file {
        Some(settings) => settings,
        None if has_keys => AuthSettings::default(),
        None => {
            complain(&"no section [auth]: name a file by --config, or a key by --public-key, --jwks or --secret-file");
            return Err(ExitCode::from(USAGE));
        }
    };
    if has_keys {
        settings.secret = None;
        settings.secret_file = matches.get_one("secret-file").cloned();
        settings.secret_env = matches.get_one("secret-env").cloned();
        settings.public_key_files = matches.get_one("public-key").cloned().into_iter().collect();
        (settings.jwks_url, settings.jwks_file) = (None, matches.get_one("jwks").cloned());
    }
    if let Some(names) = matches.get_many::<String>("audience") {
        settings.audience = names.cloned().collect();
    }
    Ok(settings)
}

fn keys(matches: &ArgMatches) -> Result<(), String> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str).unwrap_or_default();
    let pair = KeyPair::generate(text("algorithm")).map_err(|error| error.to_string())?;
    let name = |end: &str| PathBuf::from(format!("{}.{end}", text("out")));
    match (&pair.public, &pair.jwks) {
        (Some(public), Some(jwks)) => {
            write(&name("private.pem"), &pair.private, 0o600)?;
            write(&name("public.pem"), public, 0o644)?;
            write(&name("jwks.json"), jwks, 0o644)
        }
        _ => write(&name("secret"), &format!("{}\n", pair.private), 0o600),
    }
}

/// Writes a new file with these permissions.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// A time such as `90s`, `15m`, `12h` or `30d`, in seconds.
fn parse_time(text: &str) -> Result<u64, String> {
    let (number, unit_s) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 60 * 60),
        Some((at, 'd')) => (&text[..at], 24 * 60 * 60),
        _ => return Err("a number and its unit, s, m, h or d, such as 90s or 15m".into()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_s));
    seconds.ok_or_else(|| "a number and its unit, s, m, h or d, such as 90s or 15m".into())
}

/// A channel or pattern, as a server reads it in a claim.
fn parse_channel(text: &str) -> Result<String, String> {
    let checked = Patterns::new([text]);
    checked.map(|_| text.into()).map_err(|_| "a channel such as /news/today or a pattern such as /news/**".into())
}

/// Checks a claim that a server understands under its default name.
fn check_claim(name: &str, value: &Value) -> Result<(), String> {
    let wrong = |reason: &dyn Display| format!("--claim {name}={value}: {reason}");
    match (name, value) {
        ("limits", _) => SessionLimits::deserialize(value).map(drop).map_err(|error| wrong(&error)),
        ("subscribe" | "publish", Value::String(channel)) => {
            parse_channel(channel).map(drop).map_err(|error| wrong(&error))
        }
        ("subscribe" | "publish", Value::Array(channels)) => channels.iter().try_for_each(|channel| {
            parse_channel(channel.as_str().unwrap_or_default()).map(drop).map_err(|error| wrong(&error))
        }),
        ("subscribe" | "publish", _) => Err(wrong(&"a list of channels and patterns, or one")),
        _ => Ok(()),
    }
}

fn parse_claim(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=JSON, such as admin=true")?;
    let value = serde_json::from_str(value).map_err(|error| format!("{error}; texts need quotes"))?;
    Ok((name.into(), value))
}

/// Most bytes of a token on standard input.
const TOKEN_BYTES_MAX: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h", 3_600), ("2d", 172_800)] {
            assert_eq!(parse_time(text), Ok(seconds));
        }
        for wrong in ["", "m", "90", "-1h", "1w", "99999999999999999d", "1.5h", "5é"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_claim_is_json() {
        assert_eq!(parse_claim("a=[1]"), Ok(("a".into(), serde_json::json!([1]))));
        assert!(parse_claim("a=b").is_err_and(|error| error.contains("quotes")));
        assert!(parse_claim("a").is_err());
    }
}
