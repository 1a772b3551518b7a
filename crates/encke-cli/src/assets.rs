//! The pages, as they were built into `web/dist`, inside the program.

use encke::{Asset, Encoded};

/// All files that the server serves beside Bayeux.
pub(crate) const ALL: &[Asset] = include!("../../../web/dist/embedded.rs");

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { files_below(&path, found) } else { found.push(path) }
        }
    }

    #[test]
    fn every_built_file_is_embedded() {
        let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/dist");
        let mut found = Vec::new();
        files_below(&dist, &mut found);
        found.retain(|path| !path.ends_with("embedded.rs"));
        assert!(found.len() > 10);
        let embedded = |content: &[u8]| {
            let mut bodies =
                ALL.iter().flat_map(|asset| asset.encoded.iter().map(|form| form.body).chain([asset.body]));
            bodies.any(|body| body == content)
        };
        for path in found {
            assert!(embedded(&std::fs::read(&path).expect("a file")), "{} is not embedded", path.display());
        }
    }
}
