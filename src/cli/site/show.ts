import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Argument, Command } from 'commander'
import { StartError } from '../../base/app-error.ts'
import { type Config, parseConfig } from '../../config.ts'
import { apiKeyPath, firstAuthtokenPath } from '../api-key-file.ts'
import type { CommandContext } from '../command-context.ts'
import { stoppedGateway } from '../local/stopped-service.ts'
import { gatewaySurroundings } from '../surroundings.ts'

const FILES = {
  'api-key': { path: apiKeyPath, name: 'API key' },
  authtoken: { path: firstAuthtokenPath, name: 'authtoken' },
  ca: { path: ({ dataDir }) => join(dataDir, 'ca.pem'), name: 'CA certificate' },
} satisfies Record<string, ShownFile>

interface ShownFile {
  readonly path: (config: Config['gateway']) => string
  readonly name: string
}

/** `device-agent gateway show`: prints a file of the data directory, also in a container without a shell. */
export function showCommand(context: CommandContext): Command {
  const { environment, root, stdout } = context
  return new Command('show')
    .description('print the API key, the first authtoken or the CA certificate of this gateway')
    .addArgument(new Argument('<what>', 'what to print').choices(Object.keys(FILES)))
    .option('--json', 'print one JSON line on stdout')
    .action((what: keyof typeof FILES, _options: object, self: Command) => {
      const { path, name } = FILES[what]
      const installed = gatewaySurroundings(environment, undefined, root)
      const config = parseConfig(installed.environment).gateway
      const file = path(config)
      const startRemedy = () => stoppedGateway(context)
      const value = read(file, { name, apiKeyFile: apiKeyPath(config), startRemedy }).trimEnd()
      // The command above it knows --json, too, and takes it.
      const { json } = self.optsWithGlobals<{ json?: boolean }>()
      stdout.write(`${json ? JSON.stringify({ what, file, value }) : value}\n`)
    })
}

interface ReadOptions {
  readonly name: string
  readonly apiKeyFile: string
  /** How to start the installed gateway, if it does not run. */
  readonly startRemedy: () => string | undefined
}

function read(file: string, { name, apiKeyFile, startRemedy }: ReadOptions): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException
    // Each gateway that has started has an API key.
    const isStarted = code === 'ENOENT' && name === FILES.authtoken.name && existsSync(apiKeyFile)
    const stopped = code === 'ENOENT' && !isStarted ? startRemedy() : undefined
    const reason = isStarted
      ? NO_FIRST_AUTHTOKEN
      : stopped
        ? `the file does not exist. ${stopped}`
        : (REASONS[code] ?? code)
    throw new StartError(`Cannot read the ${name} at ${file}: ${reason}`, { cause: error })
  }
}

/** `up` keeps the authtoken of its own agent in the data directory of the agent. */
const NO_FIRST_AUTHTOKEN =
  'the file does not exist. A gateway of `device-agent up` (npm start) connects its own agent without this file. For another device, create an invitation: device-agent gateway invite.'

const REASONS: Readonly<Record<string, string>> = {
  ENOENT:
    'the file does not exist. Start the gateway once, or set GATEWAY_DATA_DIR to its data directory.',
  EACCES: 'permission denied. Run this command as the user of the gateway, or with sudo.',
}
