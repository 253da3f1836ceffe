import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import process from 'node:process'
import { Command, InvalidArgumentError, Option } from 'commander'
import { StartError } from '../base/app-error.ts'
import { parseConfig } from '../config.ts'
import type { PlacedProblem } from '../policy/check.ts'
import type { ExplainedRequest } from '../policy/explain.ts'
import { mayDial, mayRead } from '../policy/outbound/outbound-allow.ts'
import type { CommandContext } from './command-context.ts'
import { problemLine } from './mistakes.ts'

const MAX_REPEAT = 100_000
const DEFAULT_IP = '203.0.113.9'
const DEFAULT_STATUS = 200

interface CheckOptions {
  readonly hosted?: boolean
  readonly json?: boolean
}

interface ExplainOptions {
  readonly request: Pick<ExplainedRequest, 'method' | 'url' | 'target'>
  readonly header: readonly string[]
  readonly ip: string
  readonly body: string
  readonly repeat: number
  readonly status: number
  readonly responseHeader: readonly string[]
  readonly json?: boolean
}

/** `device-agent policy …`: checks and explains a policy before it is used. */
export function policyCommand(context: CommandContext): Command {
  const policy = new Command('policy').description('check and explain traffic policies')
  policy
    .command('check')
    .description('report all problems of policy files as file:line:column: message')
    .argument('<file...>', 'JSON or YAML files; - for standard input')
    .option('--hosted', 'check for the hosted service; features unknown here are warnings')
    .option('--json', 'print one JSON line on stdout')
    .action((files: string[], options: CheckOptions) => check(context, files, options))
  policy
    .command('explain')
    .description('run a policy for a sample request and show matching rules and the response')
    .argument('<file>', 'JSON or YAML file; - for standard input')
    .addOption(
      new Option('--request <request>', "method and URL, such as 'GET https://device.example/p'")
        .argParser(parseRequest)
        .makeOptionMandatory(),
    )
    .addOption(
      new Option('-H, --header <header>', "a header, such as 'x-api-key: one'; may be repeated")
        .argParser(parseHeader)
        .default([], 'none'),
    )
    .addOption(
      new Option('--ip <address>', 'address of the client').argParser(parseIp).default(DEFAULT_IP),
    )
    .option('--body <text>', 'body of the request', '')
    .addOption(
      new Option('--status <code>', 'status of the upstream response')
        .argParser(parseStatus)
        .default(DEFAULT_STATUS),
    )
    .addOption(
      new Option('--response-header <header>', 'a header of the upstream response; may be repeated')
        .argParser(parseHeader)
        .default([], 'none'),
    )
    .addOption(
      new Option('--repeat <count>', 'number of times to send the request, to test rate limits')
        .argParser(parseRepeat)
        .default(1),
    )
    .option('--json', 'print one JSON line per request')
    .action((file: string, options: ExplainOptions) => explain(context, file, options))
  policy
    .command('schema')
    .description('print a JSON Schema of policy files, for editors')
    .action(async () => {
      const { policyJsonSchema } = await import('../policy/actions/all-actions.ts')
      context.stdout.write(`${JSON.stringify(policyJsonSchema(), null, 2)}\n`)
    })
  return policy
}

async function check(
  { stdout }: CommandContext,
  files: readonly string[],
  { hosted, json }: CheckOptions,
): Promise<void> {
  const { checkPolicy } = await import('../policy/check.ts')
  const views: object[] = []
  const unreadable: string[] = []
  for (const file of files) {
    const text = textOf(file)
    if (typeof text !== 'string') {
      unreadable.push(`${file}: ${text.reason}.`)
      views.push(unreadableView(file, text.reason))
      continue
    }
    const problems = checkPolicy(text, { service: hosted ? 'hosted' : 'embedded' })
    const isGood = problems.every(({ severity }) => severity !== 'error')
    if (!isGood) process.exitCode = 1
    if (json) {
      views.push(...problems.map((problem) => problemView(file, problem)))
      continue
    }
    for (const problem of problems) stdout.write(`${problemLine(file, problem)}\n`)
    if (isGood) stdout.write(`${file}: ok\n`)
  }
  if (unreadable.length > 0) process.exitCode = 1
  if (json) stdout.write(`${JSON.stringify({ problems: views })}\n`)
  else if (unreadable.length > 0) throw new StartError(unreadable.join(' '))
}

function unreadableView(file: string, message: string): object {
  const place = { line: null, column: null, pointer: null }
  return { file, ...place, severity: 'error', code: null, message }
}

function problemView(file: string, problem: PlacedProblem): object {
  const { position, severity, code, message, pointer } = problem
  return { file, ...position, pointer, severity, code, message }
}

/** Errors of the policy and notes go to stderr: stdout contains only explanations. */
async function explain(
  { stdout, stderr, environment }: CommandContext,
  file: string,
  { request, header, ip, body, status, responseHeader, repeat, json }: ExplainOptions,
): Promise<void> {
  const [
    { checkPolicy },
    { explainPolicy },
    { PolicyError },
    { explanationNotes, explanationsText },
  ] = await Promise.all([
    import('../policy/check.ts'),
    import('../policy/explain.ts'),
    import('../policy/document/problem.ts'),
    import('./explanation-text.ts'),
  ])
  const text = readPolicy(file)
  const problems = checkPolicy(text, { service: 'embedded' })
  for (const problem of problems) stderr.write(`${problemLine(file, problem)}\n`)
  if (problems.some(({ severity }) => severity === 'error')) {
    throw new StartError(`${file} is not a valid policy.`)
  }
  const upstream = { status, headers: responseHeader }
  const made = { ...request, headers: header, body, clientIp: ip, upstream }
  const { outboundAllow } = parseConfig(environment).gateway
  const explanations = await explainPolicy(text, made, {
    repeat,
    mayDial: (target) => mayDial(outboundAllow, target),
    mayRead: (path) => mayRead(outboundAllow, path),
  }).catch((error: unknown) => {
    if (!(error instanceof PolicyError)) throw error
    throw new StartError(`${file} is not a valid policy. ${error.message}`, { cause: error })
  })
  for (const note of explanationNotes(text, explanations)) stderr.write(`note: ${note}\n`)
  if (!json) stdout.write(`${explanationsText(explanations)}\n`)
  else for (const one of explanations) stdout.write(`${JSON.stringify(one)}\n`)
}

function readPolicy(file: string): string {
  const text = textOf(file)
  if (typeof text === 'string') return text
  throw new StartError(`${file}: ${text.reason}.`, { cause: text.cause })
}

/** The text of the file, or the reason why it cannot be read. */
function textOf(file: string): string | { readonly reason: string; readonly cause: unknown } {
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8')
  } catch (cause) {
    const isMissing = (cause as NodeJS.ErrnoException).code === 'ENOENT'
    return { reason: isMissing ? 'file not found' : 'cannot read the file', cause }
  }
}

function parseRequest(text: string): ExplainOptions['request'] {
  const [, method, target] = /^([A-Z]+) (https?:\/\/\S+)$/.exec(text) ?? []
  if (method === undefined || target === undefined || !URL.canParse(target)) {
    throw new InvalidArgumentError(
      "Use a method in upper case and a URL with http:// or https://, such as 'GET https://h/p'.",
    )
  }
  const url = new URL(target)
  const [, sent = ''] = /^https?:\/\/[^/?#]*([^#]*)/.exec(target) ?? []
  const path = sent.startsWith('/') ? sent : `/${sent}`
  return { method, url, target: path.replace(/[^!-~]+/g, encodeURIComponent) }
}

function parseHeader(text: string, earlier: readonly string[]): string[] {
  const [, name, value] = /^([\w!#$%&'*+.^`|~-]+):[ \t]*(.*?)[ \t]*$/.exec(text) ?? []
  if (name === undefined || value === undefined) {
    throw new InvalidArgumentError("Use a name and a value, such as 'x-api-key: one'.")
  }
  return [...earlier, name, value]
}

function parseIp(text: string): string {
  if (isIP(text) === 0) throw new InvalidArgumentError('Use an IPv4 or IPv6 address.')
  return text
}

function parseStatus(text: string): number {
  if (!/^[2-5]\d\d$/.test(text)) throw new InvalidArgumentError('Use a number from 200 to 599.')
  return Number(text)
}

function parseRepeat(text: string): number {
  const count = Number(text)
  if (!Number.isInteger(count) || count < 1 || count > MAX_REPEAT) {
    throw new InvalidArgumentError(`Use a whole number from 1 to ${MAX_REPEAT}.`)
  }
  return count
}
