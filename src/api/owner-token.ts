import { StartError } from '../base/app-error.ts'
import type { Actor } from '../base/audit.ts'
import { closeSecretFile } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import type { AuditTrail } from '../store/audit-trail.ts'
import { type ApiTokens, OWNER, type OwnerAdoption } from './api-tokens.ts'

const STARTER: Actor = { kind: 'command-line', id: null, name: 'start of the agent' }
/** What the trail calls what a start did to the owner's token. */
const ACTIONS: Partial<Record<OwnerAdoption, string>> = {
  made: 'token.create',
  healed: 'token.heal',
  dropped: 'token.delete',
}

export interface OwnerTokenOptions {
  readonly tokens: ApiTokens
  readonly trail: AuditTrail
  readonly log: Logger
}

/**
 * Makes sure that the owner of the device has a token. Throws a StartError when there never was one
 * and none can be kept; later, tunnels matter more than the API.
 */
export function openOwnerToken({ tokens, trail, log }: OwnerTokenOptions): void {
  const path = tokens.ownerPath
  const isFirst = tokens.list().length === 0
  if (closeSecretFile(path))
    log.warn({ file: path }, 'other users could read this file: rotate the token of the API')
  try {
    const done = tokens.adoptOwner()
    const action = ACTIONS[done]
    if (action)
      trail.record({ actor: STARTER, client: null, action, targetId: OWNER, targetName: OWNER })
    if (done === 'made') log.info({ file: path }, 'the token of the API is in this file')
    if (done === 'healed')
      log.warn({ file: path }, 'the stored hash was not that of this file: the file counts')
    if (done === 'dropped')
      log.info({ file: path }, 'AGENT_API_TOKEN has taken the place of this file')
    if (done === 'unreadable')
      log.warn({ file: path }, 'this file cannot be read: the token that it held last counts')
  } catch (error) {
    if (isFirst && !tokens.ownerPlain) {
      throw new StartError(
        'No API token can be made, because the data folder cannot be written: set AGENT_API_TOKEN, or make the folder writable.',
        { cause: error },
      )
    }
    log.error({ err: error, file: path }, 'the token of the API could not be brought up to date')
  }
}
