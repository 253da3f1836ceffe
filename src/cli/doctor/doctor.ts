import { existsSync, readFileSync } from 'node:fs'
import { Command } from 'commander'
import { parse as parseDotenv } from 'dotenv'
import { StartError } from '../../base/app-error.ts'
import { type Config, parseConfig } from '../../config.ts'
import type { CommandContext } from '../command-context.ts'
import { type Colour, type Paint, paintFor, plainLine } from '../local/terminal-text.ts'
import { bad, type Finding, good, type Outcome } from './finding.ts'

/** Where the installed service has what this program gets from its surroundings. */
const INSTALLED = {
  settings: '/etc/device-agent/agent.env',
  authtoken: '/etc/credstore/svc-authtoken',
  policy: '/etc/device-agent/default-policy.json',
  data: '/var/lib/device-agent',
}
const MARKS: Readonly<Record<Outcome, readonly [mark: string, colour: Colour]>> = {
  good: ['✓', 'green'],
  bad: ['✗', 'red'],
  skipped: ['-', 'dim'],
}

interface DoctorOptions {
  readonly dataDir?: string
  readonly json?: boolean
}

/** `device-agent doctor`: each link of the chain in its order. Ends with 1 when one does not hold. */
export function doctorCommand(context: CommandContext): Command {
  return new Command('doctor')
    .description('look at each link of the chain in turn: what is wrong, and what to do about it')
    .option(
      '--data-dir <folder>',
      'the data folder of the agent; unset: of this program, or of the service',
    )
    .option('--json', 'one JSON line for each finding, and nothing else')
    .action((options: DoctorOptions) => examine(context, options))
}

async function examine(context: CommandContext, options: DoctorOptions): Promise<void> {
  const { stdout, environment, stop } = context
  const paint = paintFor(stdout, environment)
  let failures = 0
  const tell = (findings: readonly Finding[]) => {
    for (const finding of findings) {
      if (finding.outcome === 'bad') failures += 1
      stdout.write(options.json ? `${JSON.stringify(finding)}\n` : findingText(finding, paint))
    }
  }
  const surroundings = surroundingsOf(environment, options)
  const config = readSettings(surroundings, tell)
  // Loaded late, as in other commands: --help must not wait for them.
  const { agentChecks, lookAtAgent } = await import('./agent-checks.ts')
  const asked = { ...context, environment: config ? surroundings.environment : {} }
  const seen = await lookAtAgent(asked, options.dataDir)
  if (config) {
    const { deviceChecks } = await import('./device-checks.ts')
    const { serviceChecks } = await import('./service-checks.ts')
    // An agent that runs may have been given what the settings around this program have not.
    const running = 'status' in seen ? seen.status.link : undefined
    tell(deviceChecks(config, running !== undefined && running.reason !== 'auth'))
    const { serverAddrs } = config
    const given = running?.server_addr ?? undefined
    const addresses = serverAddrs.length === 0 && given !== undefined ? [given] : serverAddrs
    tell(await serviceChecks({ ...config, serverAddrs: addresses }, stop))
  }
  tell(await agentChecks(seen))
  if (failures > 0) process.exitCode = 1
  if (!options.json) stdout.write(`\n${summary(failures)}\n`)
}

interface Surroundings {
  readonly environment: CommandContext['environment']
  readonly source: string
}

/** Of the installed service, unless this program has settings of its own, or a folder is named. */
function surroundingsOf(
  environment: CommandContext['environment'],
  { dataDir }: DoctorOptions,
): Surroundings {
  const own = { ...environment, ...(dataDir === undefined ? {} : { AGENT_DATA_DIR: dataDir }) }
  const hasOwn = Object.keys(own).some((name) => /^(?:SVC|AGENT)_/.test(name))
  if (hasOwn || !existsSync(INSTALLED.settings)) return { environment: own, source: 'environment' }
  const installed = {
    STATE_DIRECTORY: INSTALLED.data,
    ...(existsSync(INSTALLED.policy) ? { AGENT_DEFAULT_POLICY: INSTALLED.policy } : {}),
    ...(existsSync(INSTALLED.authtoken) ? { SVC_AUTHTOKEN_FILE: INSTALLED.authtoken } : {}),
    ...readInstalled(),
  }
  return { environment: { ...environment, ...installed }, source: INSTALLED.settings }
}

function readInstalled(): Record<string, string> {
  try {
    return parseDotenv(readFileSync(INSTALLED.settings))
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`${INSTALLED.settings} cannot be read (${code}): try with sudo.`, {
      cause: error,
    })
  }
}

function readSettings(
  { environment, source }: Surroundings,
  tell: (findings: readonly Finding[]) => void,
): Config['agent'] | undefined {
  try {
    const config = parseConfig(environment)
    tell([good('settings', `from ${source}`)])
    return config.agent
  } catch (error) {
    if (!(error instanceof StartError)) throw error
    tell([bad('settings', error.message, `Mend them in ${source}, and restart the agent.`)])
    return undefined
  }
}

function findingText({ check, outcome, detail, remedy }: Finding, paint: Paint): string {
  const [mark, colour] = MARKS[outcome]
  const advice = remedy === null ? '' : `  → ${plainLine(remedy)}\n`
  return `${paint(colour, mark)} ${paint('bold', plainLine(check))}: ${plainLine(detail)}\n${advice}`
}

function summary(failures: number): string {
  if (failures === 0) return 'Everything that was looked at is well.'
  const [noun, verb] = failures === 1 ? ['thing', 'is'] : ['things', 'are']
  return `${failures} ${noun} ${verb} not well; begin with the first.`
}
