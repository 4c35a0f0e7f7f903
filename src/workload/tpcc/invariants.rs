//! Conditions that hold over the data whenever no transaction is in progress.
//!
//! The first twelve are the specification's consistency conditions (3.3.2). Three are corrected:
//! outer joins and `coalesce` see groups without rows, where inner joins would skip them; and
//! condition 11 as printed is false after the first Delivery, so deliveries are counted in.

use crate::workload::Invariant;

/// A relationship of 1.3: rows without their parent.
macro_rules! orphans {
    ($name:literal, $child:literal, $parent:literal, $columns:literal, $condition:literal) => {
        Invariant {
            name: $name,
            source: "pgdyno",
            summary: concat!("every row of ", $child, " has its ", $parent),
            violations_sql: concat!(
                "SELECT ",
                $columns,
                " FROM ",
                $child,
                " WHERE NOT EXISTS (SELECT 1 FROM ",
                $parent,
                " WHERE ",
                $condition,
                ")"
            ),
        }
    };
}

pub(super) static INVARIANTS: &[Invariant] = &[
    Invariant {
        name: "w_ytd_equals_sum_of_d_ytd",
        source: "TPC-C 3.3.2.1",
        summary: "a warehouse's year-to-date is the sum of its districts'",
        violations_sql: "\
            SELECT w_id, w_ytd, d.ytd AS sum_of_d_ytd FROM warehouse \
            LEFT JOIN (SELECT d_w_id, sum(d_ytd) AS ytd FROM district GROUP BY d_w_id) d \
            ON d.d_w_id = w_id \
            WHERE w_ytd IS DISTINCT FROM d.ytd",
    },
    Invariant {
        name: "d_next_o_id_follows_newest_order",
        source: "TPC-C 3.3.2.2",
        summary: "the next order number is one more than the newest order and new order",
        violations_sql: "\
            SELECT d_w_id, d_id, d_next_o_id, o.newest AS newest_o_id, n.newest AS newest_no_o_id \
            FROM district \
            LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS newest FROM orders \
            GROUP BY o_w_id, o_d_id) o ON o.o_w_id = d_w_id AND o.o_d_id = d_id \
            LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS newest FROM new_order \
            GROUP BY no_w_id, no_d_id) n ON n.no_w_id = d_w_id AND n.no_d_id = d_id \
            WHERE o.newest IS DISTINCT FROM d_next_o_id - 1 \
            OR (n.newest IS NOT NULL AND n.newest <> d_next_o_id - 1)",
    },
    Invariant {
        name: "new_orders_have_no_gap",
        source: "TPC-C 3.3.2.3",
        summary: "the undelivered orders of a district are numbered without a gap",
        violations_sql: "\
            SELECT no_w_id, no_d_id, min(no_o_id) AS oldest, max(no_o_id) AS newest, \
            count(*) AS new_orders FROM new_order GROUP BY no_w_id, no_d_id \
            HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
    },
    Invariant {
        name: "order_lines_equal_sum_of_o_ol_cnt",
        source: "TPC-C 3.3.2.4",
        summary: "a district has as many order lines as its orders say",
        violations_sql: "\
            SELECT coalesce(o.w_id, l.w_id) AS w_id, coalesce(o.d_id, l.d_id) AS d_id, \
            o.expected AS sum_of_o_ol_cnt, l.present AS order_lines \
            FROM (SELECT o_w_id AS w_id, o_d_id AS d_id, sum(o_ol_cnt) AS expected FROM orders \
            GROUP BY o_w_id, o_d_id) o \
            FULL JOIN (SELECT ol_w_id AS w_id, ol_d_id AS d_id, count(*) AS present \
            FROM order_line GROUP BY ol_w_id, ol_d_id) l \
            ON l.w_id = o.w_id AND l.d_id = o.d_id \
            WHERE o.expected IS DISTINCT FROM l.present",
    },
    Invariant {
        name: "orders_without_carrier_are_new_orders",
        source: "TPC-C 3.3.2.5",
        summary: "an order has no carrier if and only if it is a new order",
        violations_sql: "\
            SELECT o_w_id, o_d_id, o_id, o_carrier_id, no_o_id FROM orders \
            LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
            WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
    },
    Invariant {
        name: "o_ol_cnt_equals_order_lines",
        source: "TPC-C 3.3.2.6",
        summary: "an order has as many lines as it says",
        violations_sql: "\
            SELECT o_w_id, o_d_id, o_id, o_ol_cnt, coalesce(l.present, 0) AS order_lines \
            FROM orders \
            LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS present FROM order_line \
            GROUP BY ol_w_id, ol_d_id, ol_o_id) l \
            ON l.ol_w_id = o_w_id AND l.ol_d_id = o_d_id AND l.ol_o_id = o_id \
            WHERE o_ol_cnt <> coalesce(l.present, 0)",
    },
    Invariant {
        name: "lines_are_delivered_with_their_order",
        source: "TPC-C 3.3.2.7",
        summary: "a line has a delivery date if and only if its order has a carrier",
        violations_sql: "\
            SELECT ol_w_id, ol_d_id, ol_o_id, ol_number, ol_delivery_d, o_id, o_carrier_id \
            FROM order_line \
            LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id \
            WHERE o_id IS NULL OR (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
    },
    Invariant {
        name: "w_ytd_equals_history",
        source: "TPC-C 3.3.2.8",
        summary: "a warehouse's year-to-date is the sum of its payments",
        violations_sql: "\
            SELECT w_id, w_ytd, h.paid FROM warehouse \
            LEFT JOIN (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id) h \
            ON h.h_w_id = w_id \
            WHERE w_ytd <> coalesce(h.paid, 0)",
    },
    Invariant {
        name: "d_ytd_equals_history",
        source: "TPC-C 3.3.2.9",
        summary: "a district's year-to-date is the sum of its payments",
        violations_sql: "\
            SELECT d_w_id, d_id, d_ytd, h.paid FROM district \
            LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history \
            GROUP BY h_w_id, h_d_id) h ON h.h_w_id = d_w_id AND h.h_d_id = d_id \
            WHERE d_ytd <> coalesce(h.paid, 0)",
    },
    Invariant {
        name: "c_balance_equals_delivered_less_paid",
        source: "TPC-C 3.3.2.10",
        summary: "a customer's balance is what was delivered less what was paid",
        violations_sql: "\
            SELECT c_w_id, c_d_id, c_id, c_balance, l.delivered, h.paid FROM customer \
            LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered FROM orders \
            JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
            WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) l \
            ON l.o_w_id = c_w_id AND l.o_d_id = c_d_id AND l.o_c_id = c_id \
            LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history \
            GROUP BY h_c_w_id, h_c_d_id, h_c_id) h \
            ON h.h_c_w_id = c_w_id AND h.h_c_d_id = c_d_id AND h.h_c_id = c_id \
            WHERE c_balance <> coalesce(l.delivered, 0) - coalesce(h.paid, 0)",
    },
    Invariant {
        name: "delivered_orders_equal_c_delivery_cnt",
        source: "TPC-C 3.3.2.11",
        summary: "a district's orders are new orders, 2,100 delivered initially, or counted as \
                  delivered by its customers",
        violations_sql: "\
            SELECT d_w_id, d_id, coalesce(o.n, 0) AS orders, coalesce(n.n, 0) AS new_orders, \
            coalesce(c.n, 0) AS delivered FROM district \
            LEFT JOIN (SELECT o_w_id, o_d_id, count(*) AS n FROM orders \
            GROUP BY o_w_id, o_d_id) o ON o.o_w_id = d_w_id AND o.o_d_id = d_id \
            LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS n FROM new_order \
            GROUP BY no_w_id, no_d_id) n ON n.no_w_id = d_w_id AND n.no_d_id = d_id \
            LEFT JOIN (SELECT c_w_id, c_d_id, sum(c_delivery_cnt) AS n FROM customer \
            GROUP BY c_w_id, c_d_id) c ON c.c_w_id = d_w_id AND c.c_d_id = d_id \
            WHERE coalesce(o.n, 0) - coalesce(n.n, 0) - coalesce(c.n, 0) <> 2100",
    },
    Invariant {
        name: "c_balance_plus_paid_equals_delivered",
        source: "TPC-C 3.3.2.12",
        summary: "a customer's balance and payments add up to what was delivered",
        violations_sql: "\
            SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, l.delivered FROM customer \
            LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered FROM orders \
            JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
            WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) l \
            ON l.o_w_id = c_w_id AND l.o_d_id = c_d_id AND l.o_c_id = c_id \
            WHERE c_balance + c_ytd_payment <> coalesce(l.delivered, 0)",
    },
    Invariant {
        name: "s_quantity_is_from_10_to_100",
        source: "pgdyno",
        summary: "the refill rule of 2.4.2.2 keeps every stock between 10 and 100",
        violations_sql: "\
            SELECT s_w_id, s_i_id, s_quantity FROM stock WHERE s_quantity NOT BETWEEN 10 AND 100",
    },
    Invariant {
        name: "stock_counters_equal_order_lines",
        source: "pgdyno",
        summary: "a stock's order count, remote count and year-to-date are those of its lines",
        violations_sql: "\
            SELECT coalesce(s_w_id, l.w_id) AS w_id, coalesce(s_i_id, l.i_id) AS i_id, s_ytd, \
            l.quantity, s_order_cnt, l.n AS order_lines, s_remote_cnt, l.remote FROM stock \
            FULL JOIN (SELECT ol_supply_w_id AS w_id, ol_i_id AS i_id, \
            sum(ol_quantity) AS quantity, count(*) AS n, \
            sum(CASE WHEN ol_supply_w_id <> ol_w_id THEN 1 ELSE 0 END) AS remote \
            FROM order_line WHERE ol_o_id > 3000 GROUP BY ol_supply_w_id, ol_i_id) l \
            ON l.w_id = s_w_id AND l.i_id = s_i_id \
            WHERE coalesce(s_ytd, 0) <> coalesce(l.quantity, 0) \
            OR coalesce(s_order_cnt, 0) <> coalesce(l.n, 0) \
            OR coalesce(s_remote_cnt, 0) <> coalesce(l.remote, 0)",
    },
    Invariant {
        name: "c_payment_cnt_equals_history",
        source: "pgdyno",
        summary: "a customer's payment count is the number of his payments",
        violations_sql: "\
            SELECT c_w_id, c_d_id, c_id, c_payment_cnt, coalesce(h.n, 0) AS payments \
            FROM customer \
            LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, count(*) AS n FROM history \
            GROUP BY h_c_w_id, h_c_d_id, h_c_id) h \
            ON h.h_c_w_id = c_w_id AND h.h_c_d_id = c_d_id AND h.h_c_id = c_id \
            WHERE c_payment_cnt <> coalesce(h.n, 0)",
    },
    Invariant {
        name: "c_ytd_payment_equals_history",
        source: "pgdyno",
        summary: "a customer's year-to-date payment is the sum of his payments",
        violations_sql: "\
            SELECT c_w_id, c_d_id, c_id, c_ytd_payment, h.paid FROM customer \
            LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history \
            GROUP BY h_c_w_id, h_c_d_id, h_c_id) h \
            ON h.h_c_w_id = c_w_id AND h.h_c_d_id = c_d_id AND h.h_c_id = c_id \
            WHERE c_ytd_payment <> coalesce(h.paid, 0)",
    },
    Invariant {
        name: "o_all_local_matches_order_lines",
        source: "pgdyno",
        summary: "an order is all local if and only if no line is supplied from elsewhere",
        violations_sql: "\
            SELECT o_w_id, o_d_id, o_id, o_all_local, coalesce(l.remote, 0) AS remote_lines \
            FROM orders \
            LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS remote FROM order_line \
            WHERE ol_supply_w_id <> ol_w_id GROUP BY ol_w_id, ol_d_id, ol_o_id) l \
            ON l.ol_w_id = o_w_id AND l.ol_d_id = o_d_id AND l.ol_o_id = o_id \
            WHERE o_all_local <> CASE WHEN l.remote IS NULL THEN 1 ELSE 0 END",
    },
    Invariant {
        name: "ol_amount_is_quantity_times_price",
        source: "pgdyno",
        summary: "a line entered by New-Order costs its quantity times the item's price",
        violations_sql: "\
            SELECT ol_w_id, ol_d_id, ol_o_id, ol_number, ol_quantity, ol_amount, i_price \
            FROM order_line LEFT JOIN item ON i_id = ol_i_id \
            WHERE ol_o_id > 3000 AND ol_amount IS DISTINCT FROM ol_quantity * i_price",
    },
    orphans!(
        "district_has_warehouse",
        "district",
        "warehouse",
        "d_w_id, d_id",
        "w_id = d_w_id"
    ),
    orphans!(
        "customer_has_district",
        "customer",
        "district",
        "c_w_id, c_d_id, c_id",
        "d_w_id = c_w_id AND d_id = c_d_id"
    ),
    orphans!(
        "history_has_customer",
        "history",
        "customer",
        "h_c_w_id, h_c_d_id, h_c_id",
        "c_w_id = h_c_w_id AND c_d_id = h_c_d_id AND c_id = h_c_id"
    ),
    orphans!(
        "history_has_district",
        "history",
        "district",
        "h_w_id, h_d_id, h_c_id",
        "d_w_id = h_w_id AND d_id = h_d_id"
    ),
    orphans!(
        "order_has_customer",
        "orders",
        "customer",
        "o_w_id, o_d_id, o_id, o_c_id",
        "c_w_id = o_w_id AND c_d_id = o_d_id AND c_id = o_c_id"
    ),
    orphans!(
        "new_order_has_order",
        "new_order",
        "orders",
        "no_w_id, no_d_id, no_o_id",
        "o_w_id = no_w_id AND o_d_id = no_d_id AND o_id = no_o_id"
    ),
    orphans!(
        "order_line_has_order",
        "order_line",
        "orders",
        "ol_w_id, ol_d_id, ol_o_id, ol_number",
        "o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id"
    ),
    orphans!(
        "order_line_has_stock",
        "order_line",
        "stock",
        "ol_w_id, ol_d_id, ol_o_id, ol_number, ol_supply_w_id, ol_i_id",
        "s_w_id = ol_supply_w_id AND s_i_id = ol_i_id"
    ),
    orphans!(
        "stock_has_warehouse",
        "stock",
        "warehouse",
        "s_w_id, s_i_id",
        "w_id = s_w_id"
    ),
    orphans!(
        "stock_has_item",
        "stock",
        "item",
        "s_w_id, s_i_id",
        "i_id = s_i_id"
    ),
    Invariant {
        name: "warehouses_are_numbered_from_1",
        source: "pgdyno",
        summary: "warehouses exist and are numbered from 1 without a gap",
        violations_sql: "\
            SELECT count(*) AS warehouses, min(w_id) AS first, max(w_id) AS last FROM warehouse \
            HAVING count(*) = 0 OR min(w_id) <> 1 OR max(w_id) <> count(*)",
    },
    Invariant {
        name: "a_warehouse_has_10_districts",
        source: "pgdyno",
        summary: "every warehouse has ten districts (1.2.1)",
        violations_sql: "\
            SELECT w_id, count(d_id) AS districts FROM warehouse \
            LEFT JOIN district ON d_w_id = w_id GROUP BY w_id HAVING count(d_id) <> 10",
    },
    Invariant {
        name: "a_district_has_3000_customers",
        source: "pgdyno",
        summary: "every district has 3,000 customers (1.2.1)",
        violations_sql: "\
            SELECT d_w_id, d_id, coalesce(c.n, 0) AS customers FROM district \
            LEFT JOIN (SELECT c_w_id, c_d_id, count(*) AS n FROM customer \
            GROUP BY c_w_id, c_d_id) c ON c.c_w_id = d_w_id AND c.c_d_id = d_id \
            WHERE coalesce(c.n, 0) <> 3000",
    },
    Invariant {
        name: "a_warehouse_stocks_100000_items",
        source: "pgdyno",
        summary: "every warehouse has stock of each of the 100,000 items (1.2.1)",
        violations_sql: "\
            SELECT w_id, coalesce(s.n, 0) AS stock FROM warehouse \
            LEFT JOIN (SELECT s_w_id, count(*) AS n FROM stock GROUP BY s_w_id) s \
            ON s.s_w_id = w_id WHERE coalesce(s.n, 0) <> 100000",
    },
    Invariant {
        name: "there_are_100000_items",
        source: "pgdyno",
        summary: "there are 100,000 items, whatever the number of warehouses (1.2.1)",
        violations_sql: "SELECT count(*) AS items FROM item HAVING count(*) <> 100000",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_twelve_conditions_of_the_specification_come_first() {
        for (n, invariant) in (1..=12).zip(INVARIANTS) {
            assert_eq!(invariant.source, format!("TPC-C 3.3.2.{n}"));
        }
        assert!(
            INVARIANTS[12..]
                .iter()
                .all(|invariant| invariant.source == "pgdyno")
        );
        let mut names: Vec<&str> = INVARIANTS.iter().map(|invariant| invariant.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), INVARIANTS.len());
    }

    #[test]
    fn every_condition_is_one_query() {
        for invariant in INVARIANTS {
            assert!(
                invariant.violations_sql.starts_with("SELECT "),
                "{}",
                invariant.name
            );
            assert!(
                !invariant.violations_sql.contains(';'),
                "{}",
                invariant.name
            );
        }
    }
}
