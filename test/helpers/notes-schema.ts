/** The smallest schema that a store test can have; numbers are never used twice. */
export const NOTES_ID = 0x6e6f7465
export const NOTES_MIGRATIONS = [
  {
    id: 'notes-1',
    sql: `CREATE TABLE notes (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      text TEXT NOT NULL
    ) STRICT`,
  },
]
