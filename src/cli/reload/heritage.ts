import * as z from 'zod'

const HeritageSchema = z.object({
  instance: z.string().min(1).max(128),
  isLinked: z.boolean(),
  serverAddr: z.string().max(300).optional(),
})

/** What a new process of an agent gets from the old one. */
export interface Heritage {
  /** With it our gateway lets the new one have the names of the old one. */
  readonly instance: string
  /** The old one serves: the new one has to show that it could, before anything is handed over. */
  readonly isLinked: boolean
  /** Where it serves; with several addresses, another gateway would not give the names out yet. */
  readonly serverAddr?: string | undefined
}

/** As the old process wrote it; undefined for what no version that we know of writes. */
export function readHeritage(text: string | undefined): Heritage | undefined {
  try {
    return HeritageSchema.safeParse(JSON.parse(text ?? '')).data
  } catch {
    return undefined
  }
}
