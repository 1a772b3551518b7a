//! The section `[auth]` as `docs/configuration.md` describes it.

/// The text of the section. A test compares names and defaults with `encke_auth::AuthSettings`.
pub(crate) const AUTH: &str = "
## Authentication

The section `[auth]` of the file requires a token (JWT) from clients: [authentication.md](authentication.md). Without the section, anybody
may open a session. Flags and environment have no spelling for it; `secret_env` names a variable.

```toml
[auth]
public_key_files = [\"/etc/encke/token.public.pem\"]
audience = [\"push.example\"]
```

| name | default | meaning |
| --- | --- | --- |
| `secret` | none | A secret of at least 32 bytes for HMAC. Better in a file or in the environment. |
| `secret_file` | none | A file with such a secret. A line feed at its end does not count. |
| `secret_env` | none | The name of the environment variable with such a secret. |
| `public_key_files` | `[]` | Files with public keys in PEM form: RSA, EC (P-256, P-384) or Ed25519. |
| `jwks_file` | none | A file with a set of keys (JWKS). It is read again when it may have changed. |
| `jwks_url` | none | The URL of a set of keys (JWKS), such as the `jwks_uri` of an OpenID provider. |
| `jwks_ca_file` | none | A file of certificates (PEM) that are trusted for `jwks_url`, beside those of the system. |
| `jwks_refresh_min_s` | `30` | Shortest time between two requests for the set of keys, in seconds. Tokens with an unknown key cause no more. |
| `jwks_max_age_s` | `600` | The age at which a set of keys is requested again, in seconds. |
| `jwks_stale_max_s` | `86400` | Longest time that the last set of keys is used while a new one cannot be had, in seconds. |
| `jwks_timeout_ms` | `3000` | Longest time of a request for the set of keys, in milliseconds. Handshakes that need it wait. |
| `jwks_bytes_max` | `262144` | Most bytes of a set of keys. |
| `jwks_keys_max` | `64` | Most keys of a set. |
| `algorithms` | `[]` | The algorithms that are allowed, such as `[\"EdDSA\"]`. Empty: those for which there are keys. |
| `audience` | `[]` | The names of this server. A token that names an audience must name one of them; if there are any, a token must name an audience. |
| `issuer` | `[]` | The issuers that are allowed. Empty: any. |
| `leeway_s` | `30` | The difference of clocks that is tolerated, in seconds. |
| `expiry_required` | `true` | True if a token must have an end (`exp`). |
| `token_bytes_max` | `8192` | Most bytes of a token. |
| `token_ext` | `[\"auth.token\", \"token\"]` | Members of a handshake's `ext` that may have the token, as paths. |
| `token_bearer` | `true` | True if a token may come as `Authorization: Bearer`. |
| `token_cookie` | `\"\"` | The name of a cookie that may have the token. Empty: none. |
| `token_query` | `\"\"` | The name of a parameter of the query that may have the token. URLs are often logged. Empty: none. |
| `user_claim` | `\"sub\"` | The claim with the user. |
| `subscribe_claim` | `\"subscribe\"` | The claim with the channels and patterns that a session may subscribe to: a list, or one text. |
| `publish_claim` | `\"publish\"` | The claim with the channels and patterns that a session may publish to: a list, or one text. |
| `limits_claim` | `\"limits\"` | The claim with the limits of a session: an object. |
| `channel_claims_required` | `false` | True if a token without a claim for channels allows none. Otherwise it sets no limit. |
| `anonymous` | `false` | True if a handshake without a token opens a session of nobody. |
| `anonymous_subscribe` | none | The channels and patterns that such a session may subscribe to. Without it: all. |
| `anonymous_publish` | none | The channels and patterns that such a session may publish to. Without it: all. |

On SIGHUP the server reads settings and keys again, for new handshakes and refreshed tokens. A section that was not there at the start, or
that is gone, needs a restart.
";

#[cfg(test)]
mod tests {
    use encke_auth::AuthSettings;
    use serde::Deserialize as _;

    use super::*;

    #[test]
    fn the_documentation_of_auth_is_what_its_settings_are() {
        let rows = AUTH.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let rows: Vec<(&str, &str)> =
            rows.map(|(name, rest)| (name, rest.split(" | ").next().unwrap_or_default().trim_matches('`'))).collect();
        for (name, default) in rows.iter().filter(|(_, default)| *default != "none") {
            let settings: AuthSettings = toml::from_str(&format!("{name} = {default}")).expect(name);
            assert_eq!(settings, AuthSettings::default(), "{name}");
        }
        let mut unknown = toml::Table::new();
        unknown.insert("no such name".into(), true.into());
        let error = AuthSettings::deserialize(unknown).expect_err("no such setting").to_string();
        let names: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        assert_eq!(rows.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    }
}
