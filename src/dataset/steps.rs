//! After the rows: indexes, foreign keys, VACUUM and ANALYZE.

use super::crew::{Sharing, Task};
use super::load::{Load, crew_for};
use super::sql::{self, identifier, literal};
use super::{chunk, marker, memory};
use crate::session::{Session, SessionError};
use crate::workload::Ddl;

/// `maintenance_work_mem` of one session: never less, never more.
const MAINTENANCE_MIN: u64 = 64 << 20;
const MAINTENANCE_MAX: u64 = 1 << 30;

impl Load<'_> {
    pub(super) fn build_indexes(&mut self, control: &mut Session) -> Result<(), SessionError> {
        let tasks = self.ddl_tasks(control, self.data.indexes(), "index")?;
        let (setting, name) = self.maintenance(control, "indexes")?;
        self.run_tasks(control, &name, tasks, vec![setting])
    }

    /// One task for each statement that was not done yet, those on large tables first.
    fn ddl_tasks(
        &self,
        control: &mut Session,
        ddl: Vec<Ddl>,
        kind: &str,
    ) -> Result<Vec<Task>, SessionError> {
        let done = marker::steps(control, self.data.schema())?;
        let mut ddl: Vec<Ddl> = ddl
            .into_iter()
            .filter(|ddl| !done.contains(&format!("{kind}.{}", ddl.name)))
            .collect();
        ddl.sort_by_key(|ddl| u64::MAX - chunk::cost(&self.data.tables()[ddl.table]));
        Ok(ddl
            .into_iter()
            .map(|ddl| Task {
                table: ddl.table,
                sharing: sharing(&ddl.sql),
                statements: vec![ddl.sql, marker::step_done(&format!("{kind}.{}", ddl.name))],
                transaction: true,
            })
            .collect())
    }

    /// Foreign keys, VACUUM and ANALYZE. Validation and VACUUM go side by side: one foreign key of
    /// the largest table takes longer than all the rest.
    pub(super) fn finish(&mut self, control: &mut Session) -> Result<(), SessionError> {
        self.add_foreign_keys(control)?;
        let mut tasks = self.validations(control)?;
        tasks.extend(self.vacuums(control)?);
        let (setting, name) = self.maintenance(control, "foreign keys, vacuum and analyze")?;
        self.run_tasks(control, &name, tasks, vec![setting])
    }

    /// Foreign keys are added NOT VALID, which needs strong locks but no time, one by one; then
    /// validated, which takes time but only locks that tables referenced in common do not mind.
    fn add_foreign_keys(&self, control: &mut Session) -> Result<(), SessionError> {
        let ddl = self
            .data
            .foreign_keys()
            .into_iter()
            .map(|ddl| Ddl {
                sql: format!("{} NOT VALID", ddl.sql.trim_end().trim_end_matches(';')),
                ..ddl
            })
            .collect();
        for task in self.ddl_tasks(control, ddl, "foreign_key")? {
            control.query("BEGIN")?;
            for statement in &task.statements {
                if let Err(error) = control.query(statement) {
                    let _ = control.query("ROLLBACK");
                    return Err(error);
                }
            }
            control.query("COMMIT")?;
        }
        Ok(())
    }

    /// One task for each foreign key that is not yet validated; the catalog remembers which.
    fn validations(&self, control: &mut Session) -> Result<Vec<Task>, SessionError> {
        let open = sql::rows(
            control,
            &format!(
                "SELECT c.relname, k.conname FROM pg_constraint k \
                 JOIN pg_class c ON c.oid = k.conrelid \
                 JOIN pg_namespace n ON n.oid = c.relnamespace \
                 WHERE n.nspname = {} AND k.contype = 'f' AND NOT k.convalidated ORDER BY 1, 2",
                literal(self.data.schema())
            ),
        )?;
        let mut tasks: Vec<Task> = open
            .into_iter()
            .filter_map(|row| {
                let mut row = row.into_iter().flatten();
                let (relation, constraint) = (row.next()?, row.next()?);
                let table = self.data.tables().iter().position(|t| t.name == relation)?;
                Some(Task {
                    table,
                    sharing: Sharing::Alone,
                    statements: vec![format!(
                        "ALTER TABLE {} VALIDATE CONSTRAINT {}",
                        identifier(&relation),
                        identifier(&constraint)
                    )],
                    transaction: true,
                })
            })
            .collect();
        tasks.sort_by_key(|task| u64::MAX - chunk::cost(&self.data.tables()[task.table]));
        Ok(tasks)
    }

    /// VACUUM and ANALYZE: the visibility map for index-only scans, statistics for the planner,
    /// and frozen rows, so that no autovacuum for freezing falls into a measurement.
    fn vacuums(&self, control: &mut Session) -> Result<Vec<Task>, SessionError> {
        let (_, loaded) = marker::progress(control, self.data)?;
        let done = marker::steps(control, self.data.schema())?;
        let mut order: Vec<usize> = (0..self.data.tables().len()).collect();
        order.sort_by_key(|i| u64::MAX - chunk::cost(&self.data.tables()[*i]));
        let mut tasks = Vec::new();
        for table in order {
            let name = self.data.tables()[table].name;
            let step = format!("vacuum.{name}");
            if done.contains(&step) {
                continue;
            }
            // One chunk of all batches was loaded with FREEZE.
            let all = (0, self.data.tables()[table].batches);
            let frozen = loaded.get(&table).is_some_and(|chunks| *chunks == [all]);
            let freeze = if frozen { "" } else { "FREEZE, " };
            tasks.push(Task {
                table,
                sharing: Sharing::Alone,
                statements: vec![
                    format!("VACUUM ({freeze}ANALYZE) {}", identifier(name)),
                    marker::step_done(&step),
                ],
                transaction: false,
            });
        }
        Ok(tasks)
    }

    fn run_tasks(
        &mut self,
        control: &mut Session,
        name: &str,
        tasks: Vec<Task>,
        setup: Vec<String>,
    ) -> Result<(), SessionError> {
        self.progress.begin(name, tasks.len() as u64);
        let size = self.connections();
        let mut crew = crew_for(self.connect, self.data.schema(), size, setup);
        let progress = &mut *self.progress;
        crew.run_tasks(control, tasks, &mut |done| progress.advance(done, 0))?;
        self.progress.end();
        Ok(())
    }

    /// The setting for sessions that build indexes, and the step's name with it.
    fn maintenance(
        &self,
        control: &mut Session,
        step: &str,
    ) -> Result<(String, String), SessionError> {
        let bytes = memory::share(control, "maintenance_work_mem", self.connections())?
            .clamp(MAINTENANCE_MIN, MAINTENANCE_MAX);
        let current = memory::setting(control, "maintenance_work_mem")?;
        let megabytes = bytes.max(current) >> 20;
        Ok((
            format!("SET maintenance_work_mem = '{megabytes}MB'"),
            format!("{step} (maintenance_work_mem {megabytes}MB)"),
        ))
    }
}

/// What may run beside it on the same table.
fn sharing(sql: &str) -> Sharing {
    let sql = sql.trim_start().to_ascii_uppercase();
    if sql.starts_with("CREATE INDEX") || sql.starts_with("CREATE UNIQUE INDEX") {
        Sharing::Shared
    } else {
        Sharing::Alone
    }
}
