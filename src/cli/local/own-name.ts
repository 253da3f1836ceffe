import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'
import { UNNAMED, withDeviceName } from '../../agent/problem.ts'
import { StartError } from '../../base/app-error.ts'
import { agentDataDir } from '../../config.ts'
import type { CommandContext } from '../command-context.ts'
import { INSTALLED, JOIN_RECORD, surroundingsOf } from '../surroundings.ts'

/** The part of a join record with the name. It becomes part of a command, so it must be a DNS label. */
const Named = z.object({
  last: z.object({ joined: z.object({ name: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/) }) }),
})

/**
 * Returns a text with the name of this device in the command that invites it again. The text stays unchanged if the
 * device has not joined, or if this user may not read its record.
 */
export function withOwnName(
  text: string,
  { environment }: Pick<CommandContext, 'environment'>,
  dataDir: string | undefined,
): string {
  if (!text.includes(UNNAMED)) return text
  const name = ownName(environment, dataDir)
  return name === undefined ? text : withDeviceName(text, name)
}

/** Name that the gateway gave this device at its last join. */
function ownName(
  environment: CommandContext['environment'],
  dataDir: string | undefined,
): string | undefined {
  try {
    const found = surroundingsOf(environment, dataDir)
    const inFolder = join(agentDataDir(found.environment), JOIN_RECORD)
    // With SVC_JOIN_FILE, the service joins itself, and has its record in the data directory.
    const isInstalled = found.source === INSTALLED.settings
    const names = (isInstalled ? [INSTALLED.joinRecord, inFolder] : [inFolder]).map(nameIn)
    return names.find((name) => name !== undefined)
  } catch (error) {
    if (error instanceof StartError) return undefined
    throw error
  }
}

function nameIn(path: string): string | undefined {
  try {
    return Named.safeParse(JSON.parse(readFileSync(path, 'utf8'))).data?.last.joined.name
  } catch {
    return undefined
  }
}
