//! Rows on their way into COPY: one writer for the binary form and for CSV files.

/// The form of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    /// `COPY … WITH (FORMAT binary)`; the file header and trailer are the sender's.
    Binary,
    /// `COPY … WITH (FORMAT csv)`: NULL is empty and unquoted.
    Csv,
}

/// Rows of one table, appended field by field; helper fills this in.
#[derive(Debug)]
pub struct CopyBuffer {
    pub format: CopyFormat,
    pub bytes: Vec<u8>,
    pub rows: u64,
}
