import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  appendFileSync,
  chmodSync,
  existsSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import { connect } from 'node:tls'
import { AcmeServer } from '../helpers/acme-server.ts'
import { type DnsZone, startDnsServer } from '../helpers/dns-server.ts'
import { MAIN } from '../helpers/program.ts'

const SERVER = '203.0.113.7'
const PROVIDER = { host: '203.0.113.53', port: 53 }
const NAME = 'gw.example.com'
const DOMAIN = '*.tunnels.example.com'
const ENV_PATH = '/etc/device-gateway/gateway.env'
const SETUP = ['gateway', 'setup', '--name', NAME, '--domain', DOMAIN, '--email', 'me@example.com']
const RECORD = /^ {2}(\S+)\. +(A|AAAA|CNAME|NS) +(\S+)$/

const say = (text: string) => process.stdout.write(`${text}\n`)
const startedAt = performance.now()
const seconds = () => `${((performance.now() - startedAt) / 1_000).toFixed(1).padStart(5)} s`

/** Runs in the namespaces. Returns the exit code. */
export async function setUpServer(): Promise<number> {
  installSystemctl()
  writeFileSync('/etc/resolv.conf', `nameserver ${PROVIDER.host}\n`)
  const zone: Record<string, DnsZone[string]> = {}
  const atEnd = (close: () => void) => void process.once('exit', close)
  await startDnsServer(zone, { listen: PROVIDER, atEnd })
  const acme = await AcmeServer.start({
    records: `${PROVIDER.host}:${PROVIDER.port}`,
    challenges: () => `${SERVER}:53`,
    now: Date.now,
    atEnd,
  })
  const options = ['--acme-directory', acme.directoryUrl]
  const dryRun = await run([...SETUP, ...options, '--dry-run'], () => {})
  expect('a dry run writes nothing', dryRun.code === 0 && !existsSync(ENV_PATH))

  const first = await runAsOwner(zone, [...options, '--wait'])
  expect('gateway setup --wait ends with 0', first.code === 0)
  expect('it ends with an invitation', first.text.includes('Paste this line on the device'))
  expect('gateway.env is private', (statSync(ENV_PATH).mode & 0o777) === 0o600)
  await expectTrusted(NAME, acme)

  const before = readFileSync(ENV_PATH, 'utf8')
  const second = await run([...SETUP, ...options], () => {})
  const isSame =
    second.text.includes('Nothing changed') && readFileSync(ENV_PATH, 'utf8') === before
  expect('the second run ends with 0 and changes nothing', second.code === 0 && isSame)

  // The API tells whole seconds.
  await pause(1_000)
  appendFileSync(ENV_PATH, 'GATEWAY_IDLE_SECONDS=77\n')
  const edited = await run([...SETUP, ...options], () => {})
  const isRestarted = /run +systemctl stop .*device-gateway/.test(edited.text)
  expect('settings edited by hand restart the gateway', edited.code === 0 && isRestarted)

  const third = await runAsOwner(zone, [...options, '--dns-listen', `${SERVER}:53`, '--wait'])
  expect('--dns-listen gets a certificate for the wildcard', third.code === 0)
  await expectTrusted('cam.tunnels.example.com', acme)
  say(process.exitCode ? 'the setup FAILED' : 'the setup works')
  return Number(process.exitCode ?? 0)
}

/** Adds the DNS records that the command prints, and nothing else. */
function runAsOwner(zone: Record<string, DnsZone[string]>, options: readonly string[]) {
  return run([...SETUP, ...options], (line) => {
    say(`        ${line}`)
    const [, name = '', type = '', value = ''] = RECORD.exec(line) ?? []
    if (name !== '') addRecord(zone, name, type, value.replace(/\.$/, ''))
  })
}

async function expectTrusted(host: string, acme: AcmeServer): Promise<void> {
  const { issuer, isTrusted } = await visit(host, acme.caPem)
  expect(`https://${host} has a certificate of ${issuer}, which its clients trust`, isTrusted)
}

function expect(what: string, isMet: boolean): void {
  say(`${isMet ? 'ok' : 'NOT'} ${seconds()}  ${what}`)
  if (!isMet) process.exitCode = 1
}

function installSystemctl(): void {
  const path = '/usr/local/sbin/systemctl'
  const source = join(import.meta.dirname, 'systemctl.mjs')
  writeFileSync(path, `#!/bin/sh\nexec ${process.execPath} ${source} "$@"\n`)
  chmodSync(path, 0o755)
}

/** As the owner adds it at the provider. */
function addRecord(
  zone: Record<string, DnsZone[string]>,
  name: string,
  type: string,
  value: string,
): void {
  if (type === 'CNAME') zone[name] = value
  else if (type === 'NS') zone[name] = { NS: value }
  else zone[name] = { [type]: [value] }
}

async function run(args: readonly string[], onLine: (line: string) => void) {
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: { PATH: `/usr/local/sbin:${process.env.PATH}`, HOME: '/' },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on('line', (line) => {
      text += `${line}\n`
      onLine(line)
    })
  }
  const [code] = await once(child, 'close')
  if (code !== 0) say(text)
  return { code, text }
}

/** The certificate that a visitor gets who trusts the authority alone. */
async function visit(host: string, ca: string): Promise<{ issuer: string; isTrusted: boolean }> {
  const socket = connect({
    host: SERVER,
    port: 443,
    servername: host,
    ca,
    rejectUnauthorized: false,
  })
  await once(socket, 'secureConnect')
  const issuer = String(socket.getPeerCertificate().issuer.CN)
  const isTrusted = socket.authorized
  socket.destroy()
  return { issuer, isTrusted }
}
