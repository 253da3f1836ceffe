import * as z from 'zod'

/** How the last update of the program stands. */
export const UpdateView = z.strictObject({
  state: z.enum(['prepared', 'copying', 'trying', 'confirmed', 'rolled-back']),
  from: z.string(),
  to: z.string(),
  reason: z.string().nullable().describe('why it was rolled back'),
  sentence: z.string(),
})
export type UpdateView = z.infer<typeof UpdateView>

/** Information about the update of this program, or about its rollback. */
export interface OwnUpdate {
  /** True while a change could still be undone with the version that made it. */
  isOnTrial(): boolean
  /** Undefined if there was no update. */
  report(): UpdateView | undefined
}
