//! A fence in a table: statements for common databases, to be run by whatever client the program has.
//!
//! A token is kept in one of its two forms ([`FencingToken`](crate::FencingToken)), each in a table of its own:
//!
//! * the *text* form, 31 characters, by `to_string`. It has room for every token, and its order is that of the token as long as
//!   the column is compared byte by byte. The columns below say so;
//! * the *integer* form, by [`to_i64`](crate::FencingToken::to_i64), in the modules `integer`: for a column of 64 bits. What it
//!   has no room for is refused before there is a statement.
//!
//! A resource has one form for good: a table of the one does not know what a table of the other has seen.
//!
//! # A transaction of any size
//! Make the table of one dialect once. Begin each transaction that the lock protects with that dialect's `ADMIT`, given the
//! name of the resource and the token; when it has changed *no* row, the token is stale: roll back. The row stays locked until
//! the transaction ends, so that no other holder's transaction comes between the check and the commit; it waits, and
//! compares with what it finds then. `HIGHEST` reads the token that was in the way, for the error.
//!
//! # A statement of your own
//! Where the table itself has a column for the token, one statement does it all:
//!
//! ```sql
//! UPDATE account SET balance = :balance, token = :token WHERE id = :id AND token <= :token
//! ```
//!
//! No row changed: the token is stale (or the account does not exist). Give the column the type that the fence's own has
//! below. This is all that a database without row locks needs, too.
//!
//! The statements for SQLite and PostgreSQL are tested on these; those for MySQL are written from its manual.

/// For SQLite 3.24 and later: parameters are `?1` the resource, `?2` the token. Begin the transaction with `BEGIN IMMEDIATE`,
/// or let `ADMIT` be its first statement.
pub mod sqlite {
    /// Makes the table, if there is none.
    pub const TABLE: &str = "\
CREATE TABLE IF NOT EXISTS lock_fence (
    resource TEXT COLLATE BINARY NOT NULL PRIMARY KEY,
    token TEXT COLLATE BINARY NOT NULL CHECK (length(token) = 31)
)";

    /// Lets the token pass and remembers it: one row changed. None changed: it is stale.
    pub const ADMIT: &str = "\
INSERT INTO lock_fence (resource, token) VALUES (?1, ?2)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE lock_fence.token <= excluded.token";

    /// The highest token of a resource.
    pub const HIGHEST: &str = "SELECT token FROM lock_fence WHERE resource = ?1";

    /// The fence with the token as an integer; parameters as above.
    pub mod integer {
        /// Makes the table, if there is none.
        pub const TABLE: &str = "\
CREATE TABLE IF NOT EXISTS lock_fence_integer (
    resource TEXT COLLATE BINARY NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL CHECK (typeof(token) = 'integer' AND token >= 0)
)";

        /// Lets the token pass and remembers it: one row changed. None changed: it is stale.
        pub const ADMIT: &str = "\
INSERT INTO lock_fence_integer (resource, token) VALUES (?1, ?2)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE lock_fence_integer.token <= excluded.token";

        /// The highest token of a resource.
        pub const HIGHEST: &str = "SELECT token FROM lock_fence_integer WHERE resource = ?1";
    }
}

/// For PostgreSQL 9.5 and later: parameters are `$1` the resource, `$2` the token. Where a transaction is `REPEATABLE READ`
/// or stricter, `ADMIT` may end with a serialization failure instead of a wait: begin it again.
pub mod postgresql {
    /// Makes the table, if there is none.
    pub const TABLE: &str = "\
CREATE TABLE IF NOT EXISTS lock_fence (
    resource TEXT NOT NULL PRIMARY KEY,
    token TEXT COLLATE \"C\" NOT NULL CHECK (length(token) = 31)
)";

    /// Lets the token pass and remembers it: one row changed. None changed: it is stale.
    pub const ADMIT: &str = "\
INSERT INTO lock_fence (resource, token) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE lock_fence.token <= excluded.token";

    /// The highest token of a resource.
    pub const HIGHEST: &str = "SELECT token FROM lock_fence WHERE resource = $1";

    /// The fence with the token as an integer; parameters as above.
    pub mod integer {
        /// Makes the table, if there is none.
        pub const TABLE: &str = "\
CREATE TABLE IF NOT EXISTS lock_fence_integer (
    resource TEXT NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL CHECK (token >= 0)
)";

        /// Lets the token pass and remembers it: one row changed. None changed: it is stale.
        pub const ADMIT: &str = "\
INSERT INTO lock_fence_integer (resource, token) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE lock_fence_integer.token <= excluded.token";

        /// The highest token of a resource.
        pub const HIGHEST: &str = "SELECT token FROM lock_fence_integer WHERE resource = $1";
    }
}

/// For MySQL and MariaDB, with InnoDB: parameters are `?` in the order that each statement names. `SEED`, then `ADMIT`.
///
/// These servers count a row that is set to what it was before as not changed, and clients differ in whether they show that
/// count or the count of rows found. `accepted` changes with each admission, so that both counts are the same.
pub mod mysql {
    /// Makes the table, if there is none.
    pub const TABLE: &str = "\
CREATE TABLE IF NOT EXISTS lock_fence (
    resource VARBINARY(512) NOT NULL PRIMARY KEY,
    token CHAR(31) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    accepted BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB";

    /// Makes the row of a resource, if there is none: the resource. Its count of rows says nothing.
    pub const SEED: &str =
        "INSERT IGNORE INTO lock_fence (resource, token) VALUES (?, '0000000000-00000000000000000000')";

    /// Lets the token pass and remembers it: the token, the resource, the token again. One row changed: it passed. None
    /// changed: it is stale.
    pub const ADMIT: &str =
        "UPDATE lock_fence SET token = ?, accepted = accepted + 1 WHERE resource = ? AND token <= ?";

    /// The highest token of a resource: the resource.
    pub const HIGHEST: &str = "SELECT token FROM lock_fence WHERE resource = ?";

    /// The fence with the token as an integer; parameters as above.
    pub mod integer {
        /// Makes the table, if there is none.
        pub const TABLE: &str = "\
CREATE TABLE IF NOT EXISTS lock_fence_integer (
    resource VARBINARY(512) NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    accepted BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB";

        /// Makes the row of a resource, if there is none: the resource. Its count of rows says nothing.
        pub const SEED: &str = "INSERT IGNORE INTO lock_fence_integer (resource, token) VALUES (?, 0)";

        /// Lets the token pass and remembers it: the token, the resource, the token again. One row changed: it passed. None
        /// changed: it is stale.
        pub const ADMIT: &str =
            "UPDATE lock_fence_integer SET token = ?, accepted = accepted + 1 WHERE resource = ? AND token <= ?";

        /// The highest token of a resource: the resource.
        pub const HIGHEST: &str = "SELECT token FROM lock_fence_integer WHERE resource = ?";
    }
}
