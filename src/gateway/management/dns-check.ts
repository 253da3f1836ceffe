import { Resolver } from 'node:dns/promises'
import * as z from 'zod'

const TIMEOUT_MS = 2_000
const TRIES = 2
/** Asked for in place of the star: only a wildcard record answers for it. */
const PROBE_LABEL = 'dns-check'

export const DnsCheckView = z.strictObject({
  ok: z.boolean(),
  records: z.array(
    z.strictObject({
      type: z.literal('CNAME'),
      /** Where the record has to stand. */
      name: z.string(),
      expected: z.string(),
      found: z.array(z.string()),
      ok: z.boolean(),
      /** Why nothing was found: the resolver's code, such as `ENOTFOUND`. */
      error: z.string().nullable(),
    }),
  ),
})

/** A CNAME record that ought to be there. */
export interface ExpectedRecord {
  readonly name: string
  readonly expected: string
}

/** Asks resolvers for CNAME records; `servers` are `address` or `address:port`. */
export class DnsCheck {
  readonly #servers: readonly string[]

  /** Without servers, the machine's own resolvers are asked. */
  constructor(servers: readonly string[] = []) {
    this.#servers = servers
  }

  async check(records: readonly ExpectedRecord[]): Promise<z.infer<typeof DnsCheckView>> {
    const resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES })
    if (this.#servers.length > 0) resolver.setServers(this.#servers)
    const checked = await Promise.all(records.map((record) => checkRecord(resolver, record)))
    return { ok: checked.every(({ ok }) => ok), records: checked }
  }
}

async function checkRecord(resolver: Resolver, { name, expected }: ExpectedRecord) {
  const record = { type: 'CNAME' as const, name, expected }
  try {
    const answers = await resolver.resolveCname(name.replace(/^\*/, PROBE_LABEL))
    const found = answers.map(normalName)
    return { ...record, found, ok: found.includes(normalName(expected)), error: null }
  } catch (error) {
    const { code = 'EUNKNOWN' } = error as NodeJS.ErrnoException
    return { ...record, found: [], ok: false, error: code }
  }
}

/** DNS names compare without case, and with or without the dot of the root. */
function normalName(name: string): string {
  return name.toLowerCase().replace(/\.$/, '')
}
