//! Run directories: written atomically, read with migration by `schema_version`.
