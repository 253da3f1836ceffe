import { hostname } from 'node:os'
import { Command } from 'commander'
import type { CommandContext } from './command-context.ts'

interface BundleOptions {
  readonly dataDir?: string
  readonly logFile?: string
  readonly json?: boolean
}

/** `device-agent support-bundle`: an archive for support, without secrets. */
export function supportBundleCommand(context: CommandContext): Command {
  return new Command('support-bundle')
    .description(
      'write an archive for support with doctor results, status, settings, versions and log, without secrets',
    )
    .argument(
      '[file]',
      'path of the new .tar.gz archive; default: a dated name in the current directory',
    )
    .option('--log-file <path>', 'log file to include')
    .option(
      '--data-dir <folder>',
      'data directory of the agent; default: from the settings, or of the service',
    )
    .option('--json', 'print one JSON line on stdout')
    .action((file: string | undefined, options: BundleOptions) => write(context, file, options))
}

async function write(
  context: CommandContext,
  file: string | undefined,
  { dataDir, logFile, json }: BundleOptions,
): Promise<void> {
  const { examineDevice } = await import('./doctor/examination.ts')
  const { gatherParts } = await import('./bundle/bundle-parts.ts')
  const { writeArchive } = await import('./bundle/archive.ts')
  const name = bundleName(new Date())
  const path = file ?? `${name}.tar.gz`
  const examination = await examineDevice(context, dataDir)
  const place = { file: logFile, dataDir }
  const parts = await gatherParts(context, examination, place)
  await writeArchive(path, name, parts)
  const names = parts.map((part) => part.name)
  const said = json
    ? JSON.stringify({ file: path, parts: names })
    : `Wrote ${path}: ${names.join(', ')}.\n` +
      'The archive contains names, addresses and log lines, but no token, key, password or policy.'
  context.stdout.write(`${said}\n`)
  const problems = parts.find((part) => part.name === 'problems.txt')
  if (problems && !json) context.stdout.write(`Not included:\n${indented(problems.text)}`)
}

const indented = (text: string) => text.replace(/^(?=.)/gm, '  ')

function bundleName(now: Date): string {
  const time = now.toISOString().slice(0, 19).replaceAll(/[-:]/g, '').replace('T', '-')
  return `device-agent-support-${hostname().replaceAll(/[^\w.-]/g, '-')}-${time}`
}
