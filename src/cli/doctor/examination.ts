import { StartError } from '../../base/app-error.ts'
import { type Config, parseConfig } from '../../config.ts'
import type { CommandContext } from '../command-context.ts'
import { readDotenv, strayLines, withPlaces } from '../settings-place.ts'
import { type Surroundings, surroundingsOf } from '../surroundings.ts'
import type { SeenAgent } from './agent-checks.ts'
import { bad, type Finding, good, skipped } from './finding.ts'

/** All checks of a device: its settings, the answers of its agent, and each link of the chain. */
export interface Examination {
  readonly surroundings: Surroundings
  /** Undefined when the settings are wrong. */
  readonly config: Config | undefined
  readonly seen: SeenAgent | StartError
  /** In the order of the chain, as each is looked at. */
  readonly findings: AsyncIterable<readonly Finding[]>
}

/** Finds the agent of this folder, of the given folder, or of the service. */
export async function examineDevice(
  context: CommandContext,
  dataDir: string | undefined,
): Promise<Examination> {
  // Loaded late, as in other commands: --help must not wait for them.
  const { lookAtAgent } = await import('./agent-checks.ts')
  const surroundings = surroundingsOf(context.environment, dataDir)
  const { config, finding } = readSettings(surroundings)
  const environment = config ? surroundings.environment : {}
  const seen = await lookAtAgent({ ...context, environment }, dataDir)
  return {
    surroundings,
    config,
    seen,
    findings: withOwnNames(allFindings(finding, config, seen, context.stop), context, dataDir),
  }
}

async function* withOwnNames(
  findings: AsyncIterable<readonly Finding[]>,
  context: CommandContext,
  dataDir: string | undefined,
): AsyncGenerator<readonly Finding[]> {
  const { withOwnName } = await import('../local/own-name.ts')
  const named = (finding: Finding): Finding => {
    const { remedy } = finding
    return { ...finding, remedy: remedy && withOwnName(remedy, context, dataDir) }
  }
  for await (const some of findings) yield some.map(named)
}

async function* allFindings(
  settings: Finding,
  config: Config | undefined,
  seen: SeenAgent | StartError,
  stop: AbortSignal,
): AsyncGenerator<readonly Finding[]> {
  const { LoneGatewayError } = await import('../local/stopped-service.ts')
  if (seen instanceof LoneGatewayError) {
    const { isActive, advice, message } = seen
    yield [isActive ? good('gateway', message) : bad('gateway', advice.problem, advice.remedy)]
    yield [skipped('agent', 'skipped. To run an agent too: systemctl enable --now device-agent')]
    return
  }
  yield [settings]
  if (config) {
    const { chainChecks } = await import('./chain.ts')
    yield* chainChecks(config.agent, seen, stop)
  } else {
    const { agentChecks } = await import('./agent-checks.ts')
    yield await agentChecks(seen)
  }
}

function readSettings(surroundings: Surroundings): {
  readonly config: Config | undefined
  readonly finding: Finding
} {
  const check = 'settings'
  const { environment } = surroundings
  const source = sourceOf(surroundings)
  try {
    const config = parseConfig(environment)
    const ignored = source === 'environment' ? [] : strayLines(source)
    if (ignored.length === 0) return { config, finding: good(check, `from ${source}`) }
    return { config, finding: bad(check, ignored.join('\n'), fixIn(source)) }
  } catch (reason) {
    const error = withPlaces(reason, environment)
    if (!(error instanceof StartError)) throw error
    return { config: undefined, finding: bad(check, error.message, fixIn(source)) }
  }
}

const fixIn = (source: string) => `Fix the settings in ${source}, then restart the agent.`

/** The program adds the settings of `.env` to its environment. */
function sourceOf({ environment, source }: Surroundings): string {
  if (source !== 'environment') return source
  const file = readDotenv()
  const given = Object.keys(environment).filter((name) => /^(?:SVC|AGENT)_/.test(name))
  const ofFile = given.filter((name) => file[name] === environment[name])
  if (ofFile.length === 0) return source
  return ofFile.length === given.length ? '.env' : `.env and ${source}`
}
