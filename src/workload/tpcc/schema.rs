//! The nine tables of TPC-C 1.3 with the specification's column names, keys and the two secondary
//! indexes that the profiles' access paths need.
//!
//! Storage parameters stay at the server's defaults: nothing is tuned silently.

use super::load::ITEM_BATCHES;
use super::random::ITEMS;
use crate::workload::{Ddl, Table};

/// Indexes into [`tables`].
pub const WAREHOUSE: usize = 0;
pub const DISTRICT: usize = 1;
pub const ITEM: usize = 2;
pub const STOCK: usize = 3;
pub const CUSTOMER: usize = 4;
pub const HISTORY: usize = 5;
pub const ORDERS: usize = 6;
pub const NEW_ORDER: usize = 7;
pub const ORDER_LINE: usize = 8;

/// Tables and indexes of one warehouse after a load.
pub const BYTES_PER_WAREHOUSE: u64 = 110_000_000;
/// Item, and what each relation takes however small it is.
pub const BYTES_FIXED: u64 = 20_000_000;

/// One table as written down here.
struct Definition {
    name: &'static str,
    columns: &'static [&'static str],
    /// Type and null rule, by column.
    types: &'static [&'static str],
    primary_key: &'static str,
    /// Rows of one warehouse, or of one batch of item.
    rows: u64,
}

/// Wider than the specification's numeric(12,2): an unpaced run overflows that within an hour.
const YEAR_TO_DATE: &str = "numeric(16,2) NOT NULL";
const ID: &str = "int4 NOT NULL";
const SMALL: &str = "int2 NOT NULL";
const MONEY: &str = "numeric(12,2) NOT NULL";
const RATIO: &str = "numeric(4,4) NOT NULL";
const TIME: &str = "timestamp NOT NULL";
const STREET: &str = "varchar(20) NOT NULL";
const STATE: &str = "char(2) NOT NULL";
const ZIP: &str = "char(9) NOT NULL";
const DIST: &str = "char(24) NOT NULL";

static DEFINITIONS: [Definition; 9] = [
    Definition {
        name: "warehouse",
        columns: &[
            "w_id",
            "w_name",
            "w_street_1",
            "w_street_2",
            "w_city",
            "w_state",
            "w_zip",
            "w_tax",
            "w_ytd",
        ],
        types: &[
            ID,
            "varchar(10) NOT NULL",
            STREET,
            STREET,
            STREET,
            STATE,
            ZIP,
            RATIO,
            YEAR_TO_DATE,
        ],
        primary_key: "w_id",
        rows: 1,
    },
    Definition {
        name: "district",
        columns: &[
            "d_id",
            "d_w_id",
            "d_name",
            "d_street_1",
            "d_street_2",
            "d_city",
            "d_state",
            "d_zip",
            "d_tax",
            "d_ytd",
            "d_next_o_id",
        ],
        types: &[
            SMALL,
            ID,
            "varchar(10) NOT NULL",
            STREET,
            STREET,
            STREET,
            STATE,
            ZIP,
            RATIO,
            YEAR_TO_DATE,
            ID,
        ],
        primary_key: "d_w_id, d_id",
        rows: 10,
    },
    Definition {
        name: "item",
        columns: &["i_id", "i_im_id", "i_name", "i_price", "i_data"],
        types: &[
            ID,
            ID,
            "varchar(24) NOT NULL",
            "numeric(5,2) NOT NULL",
            "varchar(50) NOT NULL",
        ],
        primary_key: "i_id",
        rows: ITEMS as u64 / ITEM_BATCHES,
    },
    Definition {
        name: "stock",
        columns: &[
            "s_i_id",
            "s_w_id",
            "s_quantity",
            "s_dist_01",
            "s_dist_02",
            "s_dist_03",
            "s_dist_04",
            "s_dist_05",
            "s_dist_06",
            "s_dist_07",
            "s_dist_08",
            "s_dist_09",
            "s_dist_10",
            "s_ytd",
            "s_order_cnt",
            "s_remote_cnt",
            "s_data",
        ],
        types: &[
            ID,
            ID,
            SMALL,
            DIST,
            DIST,
            DIST,
            DIST,
            DIST,
            DIST,
            DIST,
            DIST,
            DIST,
            DIST,
            ID,
            ID,
            ID,
            "varchar(50) NOT NULL",
        ],
        primary_key: "s_w_id, s_i_id",
        rows: ITEMS as u64,
    },
    Definition {
        name: "customer",
        columns: &[
            "c_id",
            "c_d_id",
            "c_w_id",
            "c_first",
            "c_middle",
            "c_last",
            "c_street_1",
            "c_street_2",
            "c_city",
            "c_state",
            "c_zip",
            "c_phone",
            "c_since",
            "c_credit",
            "c_credit_lim",
            "c_discount",
            "c_balance",
            "c_ytd_payment",
            "c_payment_cnt",
            "c_delivery_cnt",
            "c_data",
        ],
        types: &[
            ID,
            SMALL,
            ID,
            "varchar(16) NOT NULL",
            STATE,
            "varchar(16) NOT NULL",
            STREET,
            STREET,
            STREET,
            STATE,
            ZIP,
            "char(16) NOT NULL",
            TIME,
            STATE,
            MONEY,
            RATIO,
            MONEY,
            MONEY,
            ID,
            ID,
            "varchar(500) NOT NULL",
        ],
        primary_key: "c_w_id, c_d_id, c_id",
        rows: 30_000,
    },
    Definition {
        name: "history",
        columns: &[
            "h_c_id", "h_c_d_id", "h_c_w_id", "h_d_id", "h_w_id", "h_date", "h_amount", "h_data",
        ],
        types: &[
            ID,
            SMALL,
            ID,
            SMALL,
            ID,
            TIME,
            "numeric(6,2) NOT NULL",
            "varchar(24) NOT NULL",
        ],
        primary_key: "",
        rows: 30_000,
    },
    Definition {
        name: "orders",
        columns: &[
            "o_id",
            "o_d_id",
            "o_w_id",
            "o_c_id",
            "o_entry_d",
            "o_carrier_id",
            "o_ol_cnt",
            "o_all_local",
        ],
        types: &[ID, SMALL, ID, ID, TIME, "int2", SMALL, SMALL],
        primary_key: "o_w_id, o_d_id, o_id",
        rows: 30_000,
    },
    Definition {
        name: "new_order",
        columns: &["no_o_id", "no_d_id", "no_w_id"],
        types: &[ID, SMALL, ID],
        primary_key: "no_w_id, no_d_id, no_o_id",
        rows: 9_000,
    },
    Definition {
        name: "order_line",
        columns: &[
            "ol_o_id",
            "ol_d_id",
            "ol_w_id",
            "ol_number",
            "ol_i_id",
            "ol_supply_w_id",
            "ol_delivery_d",
            "ol_quantity",
            "ol_amount",
            "ol_dist_info",
        ],
        types: &[
            ID,
            SMALL,
            ID,
            SMALL,
            ID,
            ID,
            "timestamp",
            SMALL,
            "numeric(6,2) NOT NULL",
            DIST,
        ],
        primary_key: "ol_w_id, ol_d_id, ol_o_id, ol_number",
        rows: 300_000,
    },
];

/// The tables, in load order. Batch k is warehouse k + 1, except for warehouse (one batch) and
/// item ([`ITEM_BATCHES`]).
pub fn tables(warehouses: u32) -> Vec<Table> {
    (0..)
        .zip(&DEFINITIONS)
        .map(|(table, definition)| {
            let columns: Vec<String> = definition
                .columns
                .iter()
                .zip(definition.types)
                .map(|(name, kind)| format!("    {name} {kind}"))
                .collect();
            let (batches, rows_per_batch) = match table {
                WAREHOUSE => (1, u64::from(warehouses)),
                ITEM => (ITEM_BATCHES, definition.rows),
                _ => (u64::from(warehouses), definition.rows),
            };
            Table {
                name: definition.name,
                ddl: format!(
                    "CREATE TABLE {} (\n{}\n)",
                    definition.name,
                    columns.join(",\n")
                ),
                columns: definition.columns,
                batches,
                rows_per_batch,
            }
        })
        .collect()
}

/// Primary keys in the column order of the specification, then the secondary indexes.
pub fn indexes() -> Vec<Ddl> {
    let keys = (0..)
        .zip(&DEFINITIONS)
        .filter(|(_, definition)| !definition.primary_key.is_empty())
        .map(|(table, definition)| {
            let name = definition.name;
            Ddl {
                table,
                name: format!("{name}_pkey"),
                sql: format!(
                    "ALTER TABLE {name} ADD CONSTRAINT {name}_pkey PRIMARY KEY ({})",
                    definition.primary_key
                ),
            }
        });
    // c_id makes the middle row of a name an index-only look-up with one answer; o_id at the end
    // makes a customer's newest order one descent.
    let secondary = [
        (
            CUSTOMER,
            "customer_by_name",
            "c_w_id, c_d_id, c_last, c_first, c_id",
        ),
        (ORDERS, "orders_by_customer", "o_w_id, o_d_id, o_c_id, o_id"),
    ]
    .map(|(table, name, columns)| Ddl {
        table,
        name: name.to_owned(),
        sql: format!(
            "CREATE INDEX {name} ON {} ({columns})",
            DEFINITIONS[table].name
        ),
    });
    keys.chain(secondary).collect()
}

/// The ten relationships of TPC-C 1.3, enforced.
pub fn foreign_keys() -> Vec<Ddl> {
    [
        (DISTRICT, "d_w_id", WAREHOUSE),
        (CUSTOMER, "c_w_id, c_d_id", DISTRICT),
        (HISTORY, "h_c_w_id, h_c_d_id, h_c_id", CUSTOMER),
        (HISTORY, "h_w_id, h_d_id", DISTRICT),
        (ORDERS, "o_w_id, o_d_id, o_c_id", CUSTOMER),
        (NEW_ORDER, "no_w_id, no_d_id, no_o_id", ORDERS),
        (ORDER_LINE, "ol_w_id, ol_d_id, ol_o_id", ORDERS),
        (ORDER_LINE, "ol_supply_w_id, ol_i_id", STOCK),
        (STOCK, "s_w_id", WAREHOUSE),
        (STOCK, "s_i_id", ITEM),
    ]
    .map(|(table, columns, referenced)| {
        let (child, parent) = (&DEFINITIONS[table], &DEFINITIONS[referenced]);
        let name = format!("{}_{}_fkey", child.name, parent.name);
        Ddl {
            table,
            sql: format!(
                "ALTER TABLE {} ADD CONSTRAINT {name} FOREIGN KEY ({columns}) REFERENCES {} ({})",
                child.name, parent.name, parent.primary_key
            ),
            name,
        }
    })
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_complete_and_only_two_columns_may_be_null() {
        let mut nullable = Vec::new();
        for definition in &DEFINITIONS {
            assert_eq!(definition.columns.len(), definition.types.len());
            for (name, kind) in definition.columns.iter().zip(definition.types) {
                if !kind.ends_with("NOT NULL") {
                    nullable.push(*name);
                }
            }
        }
        assert_eq!(nullable, ["o_carrier_id", "ol_delivery_d"]);
        assert_eq!(DEFINITIONS[ORDER_LINE].name, "order_line");
        assert_eq!(DEFINITIONS[NEW_ORDER].name, "new_order");
        assert_eq!(DEFINITIONS[HISTORY].name, "history");
    }

    #[test]
    fn there_are_eight_primary_keys_two_indexes_and_ten_foreign_keys() {
        let indexes = indexes();
        let keys = indexes.iter().filter(|ddl| ddl.sql.contains("PRIMARY KEY"));
        assert_eq!((keys.count(), indexes.len()), (8, 10));
        let foreign_keys = foreign_keys();
        let mut names: Vec<&str> = foreign_keys.iter().map(|ddl| ddl.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 10);
    }

    #[test]
    fn money_is_exact_and_ids_are_integers() {
        for table in tables(1) {
            assert!(!table.ddl.contains("float"), "{}", table.ddl);
            assert!(!table.ddl.contains("double"), "{}", table.ddl);
        }
        let ddl = &tables(7)[DISTRICT].ddl;
        assert!(ddl.contains("d_id int2 NOT NULL") && ddl.contains("d_ytd numeric(16,2) NOT NULL"));
    }
}
