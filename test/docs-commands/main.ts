/**
 * `npm run test:docs-commands [-- page …]`: collects the shell commands of README.md and docs/, and runs those that
 * need one machine only, page by page, against the built program. Each page has an agent, a gateway and a sample
 * service in a folder of its own. The ports of the pages are in network and mount namespaces of this script: as
 * root, or where users may create namespaces. Ends with 1 if a command fails.
 */
import { spawnSync } from 'node:child_process'
import process from 'node:process'
import { printTable } from '../../bench/tools.ts'
import { commandsOf, documentedPages, outputBlocks, type PageCommand } from './commands.ts'
import { PageSite, startServices } from './page-site.ts'
import { EXIT_CODES, NOT_HERE, PAGES } from './rules.ts'

const INSIDE = 'DOCS_COMMANDS_IN_NAMESPACE'
const USAGE = `Usage: npm run test:docs-commands [-- page …]

Runs the shell commands of README.md and docs/, or of the pages whose path contains a word.
Exit codes: 0, all commands that can run here pass; 1, a command fails.
`
const MAX_SHOWN = 76
const PREPARE = `set -eu
ip link set lo up
ip address add 192.168.1.20/32 dev lo
ip address add 192.168.1.21/32 dev lo
hosts=$(mktemp)
printf '127.0.0.1 localhost gateway.example.com gateway.lan cam01.site.example.com cam07.site.example.com\\n' > "$hosts"
mount --bind "$hosts" /etc/hosts
rm -f "$hosts"
exec "$@"`

interface Row {
  readonly command: PageCommand
  readonly result: 'passed' | 'FAILED' | 'not here'
  readonly note: string
}

const reasonAgainst = ({ text }: PageCommand) =>
  NOT_HERE.find(([pattern]) => pattern.test(text))?.[1]

/** The first line of a command in a cell of a table. */
function shownLine({ text }: PageCommand): string {
  const [line = ''] = text.split('\n')
  return line
    .replace(/ +#.*$/, '')
    .slice(0, MAX_SHOWN)
    .replaceAll('|', '\\|')
}

async function runPage(page: string): Promise<Row[]> {
  const commands = commandsOf(page)
  const rule = PAGES[page] ?? {}
  const placeholders = Object.keys(rule.values ?? {})
  const reasonOf = (command: PageCommand) => {
    const left = placeholders.reduce((text, it) => text.replaceAll(it, ''), command.text)
    return reasonAgainst(command) ?? (left.includes('…') ? 'a placeholder' : undefined)
  }
  const skip = (command: PageCommand, note: string): Row => ({ command, result: 'not here', note })
  if (commands.every(reasonOf)) return commands.map((it) => skip(it, reasonOf(it) ?? ''))
  const site = await PageSite.start(page, rule)
  try {
    const rows: Row[] = []
    for (const command of commands) {
      const reason = reasonOf(command)
      rows.push(reason ? skip(command, reason) : await runOne(site, command))
    }
    return rows
  } finally {
    await site.stop()
  }
}

async function runOne(site: PageSite, command: PageCommand): Promise<Row> {
  const expected = EXIT_CODES.find(([pattern]) => pattern.test(command.text))?.[1] ?? [0]
  // A failed preparation is a failure of this command only.
  const { code, output } = await site
    .run(command)
    .catch((error: Error) => ({ code: null, output: error.message }))
  // curl ends with 0 also if an API refuses the request. A log may have such a status, too.
  const isRefused =
    /\bcurl\b/.test(command.text) && /"status_code":[45]\d\d|"status":[45]\d\d/.test(output)
  if (process.env.DOCS_COMMANDS_OUTPUT) {
    process.stderr.write(`\n$ ${command.text}\n${output}[${code}]\n`)
  }
  const isPassed = code !== null && expected.includes(code) && !isRefused
  const note = isPassed ? '' : `${code}: ${output.trim().split('\n').slice(0, 4).join(' ')}`
  return { command, result: isPassed ? 'passed' : 'FAILED', note }
}

async function main(words: readonly string[]): Promise<number> {
  const pages = documentedPages().filter(
    (page) => words.length === 0 || words.some((word) => page.includes(word)),
  )
  const services = await startServices()
  const rows: Row[] = []
  for (const page of pages) rows.push(...(await runPage(page)))
  for (const server of services) server.close()
  printTable(
    ['page', 'command', 'result', 'reason'],
    rows.map(({ command, result, note }) => [
      `${command.page}:${command.line}`,
      shownLine(command),
      result,
      note,
    ]),
  )
  const count = (result: Row['result']) => rows.filter((it) => it.result === result).length
  const outputs = pages.reduce((sum, page) => sum + outputBlocks(page), 0)
  process.stdout.write(
    `\n${rows.length} commands: ${count('passed')} passed, ${count('FAILED')} failed, ` +
      `${count('not here')} cannot run here. ${outputs} blocks of output, settings and files.\n`,
  )
  return count('FAILED') === 0 ? 0 : 1
}

const words = process.argv.slice(2)
if (words.includes('--help') || words.includes('-h')) {
  process.stdout.write(USAGE)
} else if (process.env[INSIDE]) {
  process.exit(await main(words))
} else {
  const asUser = process.getuid?.() === 0 ? [] : ['--user', '--map-root-user']
  const again = [process.execPath, ...process.execArgv, ...process.argv.slice(1)]
  const namespaces = [...asUser, '--net', '--mount', '--pid', '--fork', '--kill-child']
  const { status, error } = spawnSync(
    'unshare',
    [...namespaces, '--mount-proc', 'sh', '-c', PREPARE, 'sh', ...again],
    { stdio: 'inherit', env: { ...process.env, [INSIDE]: '1' } },
  )
  if (error) throw error
  process.exitCode = status ?? 1
}
