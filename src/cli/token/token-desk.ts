import { existsSync, statSync } from 'node:fs'
import { userInfo } from 'node:os'
import process from 'node:process'
import * as z from 'zod'
import { agentDatabasePath, openAgentDatabase } from '../../api/agent-database.ts'
import { ApiTokens } from '../../api/api-tokens.ts'
import {
  aboutNew,
  aboutRevoked,
  NewTokenView,
  newTokenView,
  readTokenRequest,
  readTokenRotation,
  TokenView,
  tokenView,
} from '../../api/token-view.ts'
import { AppError, StartError } from '../../base/app-error.ts'
import type { AuditedChange } from '../../base/audit.ts'
import { systemClock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { type Config, parseConfig } from '../../config.ts'
import { AuditTrail } from '../../store/audit-trail.ts'
import { tryLockFolder } from '../../store/data-folder.ts'
import type { CommandContext } from '../command-context.ts'
import { LocalAgent } from '../local/local-agent.ts'
import { hasAgentService, startCommand } from '../local/stopped-service.ts'
import { openProcessLog } from '../process-log.ts'
import { refuseOnTrial } from '../update/refuse-on-trial.ts'
import type { UpdateHome } from '../update/update-home.ts'

/** Tokens of a running agent, through its socket. Access to the socket needs no token. */
function runningTokenDesk(agent: LocalAgent) {
  const pathOf = (name: string) => `/tokens/${encodeURIComponent(name)}`
  return {
    list: () => agent.ask({ path: '/tokens' }, z.array(TokenView)),
    create: (body: object) => agent.ask({ method: 'POST', path: '/tokens', body }, NewTokenView),
    rotate: (name: string, body: object) =>
      agent.ask({ method: 'POST', path: `${pathOf(name)}/rotate`, body }, NewTokenView),
    revoke: async (name: string) => {
      await agent.ask({ method: 'DELETE', path: pathOf(name) }, z.undefined())
    },
  }
}

/** Operations on tokens. Names may be ids. Bodies and responses are those of the API. */
export interface TokenDesk {
  list(): Promise<TokenView[]>
  create(body: object): Promise<NewTokenView>
  rotate(name: string, body: object): Promise<NewTokenView>
  revoke(name: string): Promise<void>
}

/**
 * Runs `work` on the tokens of the agent whose data directory the settings name, else of the installed
 * service. It uses the socket of a running agent, because the agent keeps its tokens in memory, else the
 * database. Every failure is a StartError.
 */
export async function withTokenDesk<T>(
  context: CommandContext,
  work: (desk: TokenDesk) => Promise<T>,
  home?: UpdateHome,
): Promise<T> {
  const { agent } = parseConfig(context.environment)
  // The output is the result of the command; the log shows only errors.
  const log = openProcessLog(context, context.environment.LOG_LEVEL ? 'info' : 'error')
  const service = LocalAgent.ofService(context)
  const isNamed = Boolean(context.environment.AGENT_DATA_DIR)
  if (!existsSync(agentDatabasePath(agent.dataDir))) {
    if (service && !isNamed) return work(runningTokenDesk(service))
    throw noDatabase(agent.dataDir)
  }
  const lock = tryLockFolder({ folder: agent.dataDir, owner: 'agent', log })
  if (!lock) return work(runningTokenDesk(LocalAgent.find(context, undefined)))
  try {
    refuseForeignFolder(agent.dataDir)
    refuseOnTrial(agent.dataDir, home)
    return await onDatabase(agent, log, work)
  } catch (error) {
    if (error instanceof StartError) throw error
    if (error instanceof AppError) throw new StartError(sentenceOf(error), { cause: error })
    throw error
  } finally {
    lock.release()
  }
}

async function onDatabase<T>(
  { dataDir, apiToken: given }: Config['agent'],
  log: Logger,
  work: (desk: TokenDesk) => Promise<T>,
): Promise<T> {
  const clock = systemClock
  const database = openAgentDatabase(dataDir, { log, clock })
  try {
    const trail = new AuditTrail({ database, log, clock })
    await trail.start()
    return await work(databaseDesk(new ApiTokens({ database, dataDir, given, log, clock }), trail))
  } finally {
    database.close()
  }
}

function databaseDesk(tokens: ApiTokens, trail: AuditTrail): TokenDesk {
  const actor = { kind: 'command-line', id: null, name: userInfo().username } as const
  const run = <R>(
    action: string,
    targetId: string | undefined,
    change: () => R,
    about: (result: R) => Partial<AuditedChange>,
  ) =>
    trail.run({ actor, client: null, action, targetId }, change, {
      about,
      codeOf: (error) => (error instanceof AppError ? error.code : 'internal'),
    })
  return {
    list: async () => tokens.list().map(tokenView),
    create: async (body) => {
      const token = readTokenRequest(body)
      const create = () => tokens.create(token)
      return newTokenView(await run('token.create', undefined, create, aboutNew))
    },
    rotate: async (name, body) => {
      const change = readTokenRotation(body)
      const rotate = () => tokens.rotate(name, change)
      return newTokenView(await run('token.rotate', name, rotate, aboutNew))
    },
    revoke: async (name) => {
      await run('token.delete', name, () => tokens.revoke(name), aboutRevoked)
    },
  }
}

/** Nothing is made here: a command in a wrong folder must not leave an agent's data there. */
function noDatabase(dataDir: string): StartError {
  return new StartError(
    `No agent data found in ${dataDir}. Set AGENT_DATA_DIR to the data directory (under systemd /var/lib/device-agent).`,
  )
}

/** Files that root leaves in the folder of a service lock the service out. */
function refuseForeignFolder(dataDir: string): void {
  if (process.geteuid?.() !== 0 || statSync(dataDir).uid === 0) return
  throw new StartError(
    `The agent is not running, and its data belongs to another user. Start the agent first: ${startCommand(hasAgentService())}.`,
  )
}

/** An error of the API in one line. */
function sentenceOf({ message, errors }: Pick<AppError, 'message' | 'errors'>): string {
  const fields = errors.map(({ pointer, detail }) => `${pointer.slice(1)} ${detail}`)
  return fields.length === 0 ? message : `${fields.join('; ')}.`
}
