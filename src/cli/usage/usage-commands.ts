import { arch, platform } from 'node:os'
import process from 'node:process'
import { Argument, Command } from 'commander'
import type { CommandContext } from '../command-context.ts'
import { readVersion } from '../version.ts'
import { settingRows } from './settings-table.ts'

const SHELLS = ['bash', 'zsh', 'fish'] as const
type Shell = (typeof SHELLS)[number]

/** The program that a command belongs to. */
function programOf(command: Command): Command {
  return command.parent ? programOf(command.parent) : command
}

/** `device-agent help [command...]`: the same as `--help` behind the command; `help settings`. */
export function helpCommand({ stdout }: CommandContext): Command {
  return new Command('help')
    .description('print the help of a command, or the settings')
    .argument('[command...]', 'a command such as tunnels add, or settings')
    .action((words: readonly string[], _options, command: Command) => {
      if (words.join(' ') === 'settings') {
        stdout.write(settingsText())
        return
      }
      let found = programOf(command)
      for (const word of words) {
        const next = found.commands.find((one) => one.name() === word)
        if (!next) command.error(`error: unknown command ${words.join(' ')}`)
        found = next
      }
      found.help()
    })
}

function settingsText(): string {
  const rows = settingRows()
  const width = Math.max(...rows.map(({ name }) => name.length))
  const lines = rows.map(({ name, fallback, meaning }) => {
    const suffix = fallback === '' ? '' : ` [${fallback}]`
    return `  ${name.padEnd(width)}  ${meaning}${suffix}\n`
  })
  return `Settings, from the environment or .env in the current directory. Services read /etc/device-agent/agent.env and\n/etc/device-gateway/gateway.env:\n${lines.join('')}`
}

/** `device-agent version`: versions for bug reports. */
export function versionCommand({ stdout }: CommandContext): Command {
  return new Command('version')
    .description('print the versions of device-agent and Node.js')
    .option('--json', 'print one JSON line')
    .action(({ json = false }: { json?: boolean }) => {
      const versions = {
        version: readVersion(),
        node: process.versions.node,
        platform: platform(),
        arch: arch(),
      }
      stdout.write(
        json
          ? `${JSON.stringify(versions)}\n`
          : `device-agent ${versions.version}, Node ${versions.node}, ${versions.platform} ${versions.arch}\n`,
      )
    })
}

/** `device-agent completion <shell>`: a completion script for commands and options. */
export function completionCommand({ stdout }: CommandContext): Command {
  return new Command('completion')
    .description(
      'print shell completion code, to load with: source <(device-agent completion bash)',
    )
    .addArgument(new Argument('<shell>', 'shell').choices(SHELLS))
    .action(async (shell: Shell, _options, command: Command) => {
      const [{ shapeOf }, { COMPLETIONS }] = await Promise.all([
        import('./command-shape.ts'),
        import('./shell-completion.ts'),
      ])
      stdout.write(COMPLETIONS[shell](shapeOf(programOf(command))))
    })
}

/** `device-agent man`: the manual, made from the same commands. */
export function manCommand({ stdout }: CommandContext): Command {
  return new Command('man')
    .description('print the manual page, to view with: device-agent man | man -l -')
    .action(async (_options, command: Command) => {
      const [{ shapeOf }, { manPage }] = await Promise.all([
        import('./command-shape.ts'),
        import('./man-page.ts'),
      ])
      const program = shapeOf(programOf(command))
      stdout.write(manPage({ program, version: readVersion(), settings: settingRows() }))
    })
}
