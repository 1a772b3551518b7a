//! `encke context`: servers with names, so that no command has to repeat their URLs and files.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use crate::talk::Failure;

/// Store servers by names.
#[derive(Subcommand)]
pub(crate) enum ContextCommand {
    /// Store a server, or change a stored one. The first one is used from then on.
    Add {
        /// Its name.
        name: String,
        #[command(flatten)]
        context: Context,
    },
    /// List the stored servers; the one in use has a *.
    List,
    /// Use a stored server in all commands that name none.
    Use {
        /// Its name.
        name: String,
    },
    /// Remove a stored server.
    Remove {
        /// Its name.
        name: String,
    },
}

/// A stored server. It names files with secrets, and holds none.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    /// Its URL.
    #[arg(long, value_name = "url")]
    pub(crate) url: String,
    /// A file with a token.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A file with a key of the HTTP API.
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// A file of PEM certificates whose certificates are accepted, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// A file of PEM certificates: the client's own.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The private key of --cert.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Accept every certificate.
    #[arg(long)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) insecure: bool,
}

/// All stored servers.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The one in use.
    current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, Context>,
}

impl Contexts {
    /// Reads the file of contexts, if there is one.
    ///
    /// # Errors
    /// It cannot be read, or is not valid.
    pub(crate) fn read() -> Result<Contexts, Failure> {
        path().map_or_else(|| Ok(Contexts::default()), |path| Contexts::read_from(&path))
    }

    fn read_from(path: &Path) -> Result<Contexts, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
        match std::fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).map_err(|error| failed(&error.message())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Contexts::default()),
            Err(error) => Err(failed(&error)),
        }
    }

    /// The context with this name, or the one in use.
    ///
    /// # Errors
    /// There is none with this name.
    pub(crate) fn find(mut self, name: Option<&str>) -> Result<Option<Context>, Failure> {
        let Some(name) = name.map(str::to_owned).or(self.current.take()) else { return Ok(None) };
        let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
        let unknown = Failure::usage(format!("there is no context {name:?}; there are: {}", known.join(", ")));
        self.contexts.remove(&name).map(Some).ok_or(unknown)
    }

    /// Replaces the file in one step.
    fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = toml::to_string(self).map_err(|error| Failure::usage(error.to_string()))?;
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| replace(path, &text));
        written.map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    }
}

/// Writes a file that only its owner may read, in one step.
pub(crate) fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    std::fs::rename(&new, path)
}

/// `$XDG_CONFIG_HOME/encke/contexts.toml`, or that below `~/.config`.
fn path() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
    Some(config.join("encke/contexts.toml"))
}

/// Runs `encke context`.
pub(crate) fn run(command: ContextCommand) -> ExitCode {
    let path = path().ok_or_else(|| Failure::usage("neither XDG_CONFIG_HOME nor HOME is set".into()));
    match path.and_then(|path| change(command, &path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn change(command: ContextCommand, path: &Path) -> Result<(), Failure> {
    let mut all = Contexts::read_from(path)?;
    let is_there = |all: &Contexts, name: &str| {
        let unknown = || Failure::usage(format!("there is no context {name:?}; see encke context list"));
        all.contexts.contains_key(name).then_some(()).ok_or_else(unknown)
    };
    match command {
        ContextCommand::Add { name, context } => {
            all.contexts.insert(name.clone(), context.with_whole_paths()?);
            all.current.get_or_insert(name);
        }
        ContextCommand::List => {
            for (name, context) in &all.contexts {
                let mark = if all.current.as_ref() == Some(name) { '*' } else { ' ' };
                println!("{mark} {name}  {}", context.url);
            }
            return Ok(());
        }
        ContextCommand::Use { name } => {
            is_there(&all, &name)?;
            all.current = Some(name);
        }
        ContextCommand::Remove { name } => {
            is_there(&all, &name)?;
            all.contexts.remove(&name);
            all.current.take_if(|current| *current == name);
        }
    }
    all.write(path)
}

impl Context {
    /// With paths that hold in every folder.
    fn with_whole_paths(mut self) -> Result<Context, Failure> {
        let files = [&mut self.token_file, &mut self.api_key_file, &mut self.ca, &mut self.cert, &mut self.key];
        for file in files.into_iter().flatten() {
            *file = std::path::absolute(&*file).map_err(|error| Failure::usage(error.to_string()))?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(url: &str) -> Context {
        let (token_file, api_key_file, ca, cert, key) = (None, None, None, None, None);
        Context { url: url.into(), token_file, api_key_file, ca, cert, key, insecure: false }
    }

    #[test]
    fn contexts_are_stored_used_and_removed() {
        let folder = std::env::temp_dir().join(format!("encke-contexts-{}", std::process::id()));
        let path = folder.join("encke/contexts.toml");
        let add = |name: &str| ContextCommand::Add { name: name.into(), context: context(&format!("http://{name}")) };
        change(add("prod"), &path).expect("stored");
        change(add("test"), &path).expect("stored");
        let url = |name| {
            let found = Contexts::read_from(&path).expect("valid").find(name);
            found.map(|found| found.map(|context| context.url)).map_err(|failure| failure.to_string())
        };
        assert_eq!(url(None), Ok(Some("http://prod".into())), "the first one is in use");
        change(ContextCommand::Use { name: "test".into() }, &path).expect("known");
        assert_eq!((url(None), url(Some("prod"))), (Ok(Some("http://test".into())), Ok(Some("http://prod".into()))));
        change(ContextCommand::Remove { name: "test".into() }, &path).expect("known");
        assert_eq!(url(None), Ok(None));
        assert!(url(Some("test")).expect_err("gone").contains("there are: prod"));
        assert!(change(ContextCommand::Use { name: "test".into() }, &path).is_err());
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
