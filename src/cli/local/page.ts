import { Command } from 'commander'
import { StartError } from '../../base/app-error.ts'
import { isLoopback } from '../../base/listen-address.ts'
import type { CommandContext } from '../command-context.ts'
import { paintFor } from './terminal-text.ts'

interface PageOptions {
  readonly dataDir?: string
  readonly json?: boolean
}

const NOWHERE =
  'The page is not reachable by a browser, because AGENT_LISTEN is not a loopback address. Set AGENT_PAGE_LISTEN, such as 0.0.0.0:7042.'

/** `device-agent page`: where the page of this device is, and a code that opens it once. */
export function pageCommand(context: CommandContext): Command {
  return new Command('page')
    .description('print the address of the device page and a one-time code to sign in')
    .option(
      '--data-dir <folder>',
      'data directory of the agent; default: from the settings, or of the service',
    )
    .option('--json', 'print one JSON line on stdout')
    .action((options: PageOptions) => show(context, options))
}

async function show(context: CommandContext, { dataDir, json }: PageOptions): Promise<void> {
  const { stdout, environment } = context
  const { LocalAgent } = await import('./local-agent.ts')
  const { PageCodeView } = await import('../../api/page/page-codes.ts')
  const agent = LocalAgent.find(context, dataDir)
  const view = await agent.ask({ method: 'POST', path: '/page_codes' }, PageCodeView)
  const [first] = view.urls
  if (first === undefined) throw new StartError(NOWHERE)
  // Behind the # it goes to no server and into no log; the page takes it out of the history.
  const address = `${first}#code=${view.code}`
  if (json) {
    stdout.write(`${JSON.stringify({ ...view, address })}\n`)
    return
  }
  const { qrText } = await import('./qr-text.ts')
  const paint = paintFor(stdout, environment)
  const drawing = await qrText(address, paint('bold', '') !== '')
  const others = view.urls.slice(1).map((url) => `  or       ${url}\n`)
  const time = new Date(view.expires_at).toTimeString().slice(0, 5)
  stdout.write(
    `\n  ${paint('bold', address)}\n${others.join('')}  code     ${paint('bold', view.code)}, valid once, until ${time}\n\n` +
      `${drawing}\n${isLoopback(new URL(first).hostname) ? alone(new URL(first)) : ''}`,
  )
}

function alone({ host, port }: URL): string {
  return `This address works only on this device. For a phone or laptop in the network, set AGENT_PAGE_LISTEN
(0.0.0.0:7042), or connect through SSH: ssh -L ${port}:${host} <device>.
`
}
