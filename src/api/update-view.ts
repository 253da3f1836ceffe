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

/** What a program knows of the update that it is, or was undone for. */
export interface OwnUpdate {
  /** True while a change could still be undone with the version that made it. */
  isOnTrial(): boolean
  /** Undefined where there was none. */
  report(): UpdateView | undefined
}
