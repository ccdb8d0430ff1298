//! The file formats the program reads and writes, and their file names.

use std::str::FromStr;

use clap::ValueEnum;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;

/// A table format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Format {
    /// Vectile: encoded columns (.vectile)
    Vectile,
    /// Parquet (.parquet)
    Parquet,
    /// ORC, which is read and not written (.orc)
    Orc,
    /// Comma-separated values with a header line (.csv)
    Csv,
    /// JSON, one object per line (.json, .jsonl, .ndjson)
    #[value(aliases = ["jsonl", "ndjson"])]
    Json,
    /// Arrow IPC file (.arrow, .feather, .ipc)
    Arrow,
    /// Arrow IPC stream (.arrows)
    Arrows,
}

/// File name extensions, the preferred one of each format first.
const EXTENSIONS: &[(&str, Format)] = &[
    ("vectile", Format::Vectile),
    ("parquet", Format::Parquet),
    ("orc", Format::Orc),
    ("csv", Format::Csv),
    ("json", Format::Json),
    ("jsonl", Format::Json),
    ("ndjson", Format::Json),
    ("arrow", Format::Arrow),
    ("feather", Format::Arrow),
    ("ipc", Format::Arrow),
    ("arrows", Format::Arrows),
];

impl Format {
    /// The extension that this program gives files of this format, without the dot.
    pub fn extension(self) -> &'static str {
        EXTENSIONS
            .iter()
            .find(|(_, format)| *format == self)
            .map_or("", |(extension, _)| *extension)
    }

    /// Text formats may be compressed as a whole; the others compress inside.
    fn may_be_compressed(self) -> bool {
        matches!(self, Format::Csv | Format::Json)
    }
}

/// A format together with the compression around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKind {
    /// The table format.
    pub format: Format,
    /// Compression of the file as a whole; only for text formats.
    pub compression: FileCompressionType,
}

impl FileKind {
    /// An uncompressed file of this format.
    pub fn plain(format: Format) -> Self {
        FileKind {
            format,
            compression: FileCompressionType::UNCOMPRESSED,
        }
    }

    /// The kind of a file by its name: `flights.csv.gz` is gzip-compressed CSV.
    pub fn of_path(path: &str) -> Option<Self> {
        let (stem, compression) = split_compression(path);
        let (_, extension) = stem.rsplit_once('.')?;
        let extension = extension.to_ascii_lowercase();
        let (_, format) = EXTENSIONS.iter().find(|(known, _)| *known == extension)?;
        let fits = !compression.is_compressed() || format.may_be_compressed();
        fits.then_some(FileKind {
            format: *format,
            compression,
        })
    }

    /// As `of_path`, with a fixed format: only the compression comes from the name.
    pub fn with_format(path: &str, format: Format) -> Self {
        match split_compression(path) {
            (_, compression) if format.may_be_compressed() => FileKind {
                format,
                compression,
            },
            _ => FileKind::plain(format),
        }
    }
}

/// The extensions of `path` that `of_path` understood, with the dot: `.csv.gz`, or nothing.
pub fn known_extension(path: &str) -> &str {
    if FileKind::of_path(path).is_none() {
        return "";
    }
    let (stem, _) = split_compression(path);
    let start = stem.rfind('.').unwrap_or(stem.len());
    path.get(start..).unwrap_or("")
}

/// All known extensions, for error messages.
pub fn all_extensions() -> String {
    let names: Vec<String> = EXTENSIONS.iter().map(|(e, _)| format!(".{e}")).collect();
    names.join(", ")
}

fn split_compression(path: &str) -> (&str, FileCompressionType) {
    path.rsplit_once('.')
        .and_then(|(stem, extension)| {
            let compression = FileCompressionType::from_str(extension).ok()?;
            compression.is_compressed().then_some((stem, compression))
        })
        .unwrap_or((path, FileCompressionType::UNCOMPRESSED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_formats() {
        let kind = |path| FileKind::of_path(path).map(|k| (k.format, k.compression));
        let plain = FileCompressionType::UNCOMPRESSED;
        assert_eq!(kind("a/b.vectile"), Some((Format::Vectile, plain)));
        assert_eq!(kind("B.PARQUET"), Some((Format::Parquet, plain)));
        assert_eq!(
            kind("x.csv.gz"),
            Some((Format::Csv, FileCompressionType::GZIP))
        );
        assert_eq!(
            kind("x.ndjson.zst"),
            Some((Format::Json, FileCompressionType::ZSTD))
        );
        assert_eq!(kind("x.arrows"), Some((Format::Arrows, plain)));
        assert_eq!(kind("x.parquet.gz"), None);
        assert_eq!(kind("x.txt"), None);
        assert_eq!(kind("parquet"), None);
    }

    #[test]
    fn extensions_are_cut_whole() {
        assert_eq!(known_extension("dir.d/x.csv.gz"), ".csv.gz");
        assert_eq!(known_extension("x.vectile"), ".vectile");
        assert_eq!(known_extension("x.txt"), "");
    }
}
