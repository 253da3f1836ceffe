import type { Database, Statement } from '../../../store/database.ts'
import { ResourceTable } from '../../records/resource-table.ts'
import type { Notice } from './notice.ts'

/** Notices of all channels. */
export class NoticeStore extends ResourceTable<Notice> {
  readonly #firstDue: Statement<[string], number>
  readonly #due: Statement<[string, number, number], string>
  readonly #count: Statement<[string], number>
  readonly #bringForward: Statement<[number, string, number]>
  readonly #forget: Statement<[string, number, number]>
  readonly #database: Database

  constructor(database: Database) {
    super({
      database,
      name: 'notification_notices',
      columns: {
        id: 'plain',
        channelId: 'plain',
        dueAt: 'plain',
        toldAt: 'plain',
        content: 'json',
      },
    })
    this.#database = database
    const of = 'FROM notification_notices WHERE channel_id = ?'
    this.#firstDue = database.prepare<[string], number>(`SELECT min(due_at) ${of}`).pluck()
    this.#due = database
      .prepare<[string, number, number], string>(
        `SELECT id ${of} AND due_at <= ? ORDER BY due_at, id LIMIT ?`,
      )
      .pluck()
    this.#count = database.prepare<[string], number>(`SELECT count(*) ${of}`).pluck()
    this.#bringForward = database.prepare(
      'UPDATE notification_notices SET due_at = ? WHERE channel_id = ? AND due_at > ?',
    )
    this.#forget = database.prepare(
      `DELETE ${of} AND due_at IS NULL AND told_at < ?
         AND (json_extract(content, '$.isToldOffline') = 0 OR told_at < ?)`,
    )
  }

  /** Time of the first notice to send; undefined if no notice waits. */
  firstDue(channelId: string): number | undefined {
    return this.#firstDue.get(channelId) ?? undefined
  }

  /** Notices to send until `at`, the oldest first. */
  due(channelId: string, at: number, limit: number): Notice[] {
    return this.#due.all(channelId, at, limit).flatMap((id) => this.get(id) ?? [])
  }

  count(channelId: string): number {
    return this.#count.get(channelId) ?? 0
  }

  /** Makes later notices due at this time. */
  bringForward(channelId: string, dueAt: number): void {
    this.#database.join(() => this.#bringForward.run(dueAt, channelId, dueAt))
  }

  /** Deletes devices that were reported before these times: those that are back, and all. */
  forget(
    channelId: string,
    times: { readonly doneBefore: number; readonly allBefore: number },
  ): void {
    const { doneBefore, allBefore } = times
    this.#database.join(() => this.#forget.run(channelId, doneBefore, allBefore))
  }
}
