import { existsSync } from 'node:fs'
import { isIP } from 'node:net'
import { join } from 'node:path'
import process from 'node:process'
import { CLOCK_TOLERANCE_MS, readServiceDate } from '../../agent/probes/service-time.ts'
import { StartError } from '../../base/app-error.ts'
import { type Clock, formatDuration, systemClock } from '../../base/clock.ts'
import { machineAddresses } from '../../base/net/public-names.ts'
import type { Config } from '../../config.ts'
import type { CommandContext } from '../command-context.ts'
import { bad, type Finding, good, skipped } from '../doctor/finding.ts'
import { hasSystemd, planFiles, startInstalled, writeFiles } from '../service/service.ts'
import { type FileChange, settingsPathOf } from '../service/service-files.ts'
import { invite } from '../site/invites.ts'
import { NameCheck, type NameFinding } from './name-check.ts'
import { type PlannedListener, portChecks } from './port-check.ts'
import { type GatewayDomain, type Reserved, RunningGateway } from './running-gateway.ts'
import { planSettings, type SetupAnswers, type SetupPlace, type SetupPlan } from './setup-plan.ts'
import { SetupReport } from './setup-report.ts'

const SERVICE = 'device-gateway'
const STATE_DIRECTORY = '/var/lib/device-gateway'
/** How long a gateway may take to start, and an authority to issue a certificate. */
const START_MS = 60_000
const ISSUE_MS = 60_000
const DNS_POLL_MS = 10_000

/** Facts of the machine that tests choose. */
export interface Machine {
  readonly isRoot: boolean
  readonly addresses: readonly string[]
  readonly clock: Clock
}

export interface SetupRun {
  /** Milliseconds; true: until everything is done. */
  readonly wait?: number | true
  readonly dryRun?: boolean
  readonly json?: boolean
  /** Asks the owner before settings are written. */
  readonly confirm?: (() => Promise<boolean>) | undefined
}

/** Files of the gateway service of this machine. */
export function settingsPlace(
  { root = '/' }: Pick<CommandContext, 'root'>,
  { addresses }: Pick<Machine, 'addresses'> = { addresses: machineAddresses() },
): SetupPlace {
  return {
    path: join(root, settingsPathOf(SERVICE)),
    stateDirectory: join(root, STATE_DIRECTORY),
    machineAddresses: addresses,
  }
}

/**
 * Prepares a gateway on this machine as far as possible, and reports what is left. Exit code 1: refused or
 * failed; 3: work is left. Throws a StartError before anything is written.
 */
export async function setup(
  context: CommandContext,
  answers: SetupAnswers,
  run: SetupRun,
  machine: Machine = thisMachine(),
): Promise<void> {
  const { root = '/', stdout, stderr, environment } = context
  const { dryRun = false, json = false, confirm } = run
  const report = new SetupReport({ out: json ? stderr : stdout, environment })
  if (!machine.isRoot && !dryRun) {
    throw new StartError(
      'Only root can set up the gateway service. Run this command with sudo, or with --dry-run to see the changes.',
    )
  }
  const place = settingsPlace(context, machine)
  const plan = planSettings(place, answers)
  refuseOtherRecords(plan, answers)
  const installation = {
    ...({ root, name: SERVICE, authtoken: undefined } as const),
    settings: plan.changed,
  }
  const isManaged = root === '/' && hasSystemd()
  const changes = planFiles(installation).filter(
    ({ path }) => isManaged || path === settingsPathOf(SERVICE),
  )
  const site = { ...context, answers, plan, run, machine, report, isManaged }
  const isRefused = await preflight(site, root)
  if (dryRun || !isRefused) report.settings(plan.changed)
  if (dryRun) writeFiles(report.out, installation, changes, true)
  else if (!isRefused && (await confirm?.()) !== false) {
    const isChanged = changes.some(isChange)
    if (isChanged) writeFiles(report.out, installation, changes)
    const { config } = plan
    const files = changes.map(({ path }) => join(root, path))
    const gateway = new RunningGateway({ config, files, clock: machine.clock, stop: context.stop })
    const isOutdated = !isChanged && (await gateway.hasOldSettings())
    if (!isChanged) report.unchanged({ isOutdated })
    if (isManaged) startInstalled(report.out, installation, changes, { isOutdated })
    else if (isChanged || isOutdated || (await gateway.ready(0)))
      report.startCommand(config.dataDir, isChanged || isOutdated)
    await finish(site, gateway, isChanged)
  } else report.fail('Nothing was written.')
  if (dryRun)
    report.names(await checkNames(site, nameCheckOf(site), undefined, []), isCluster(site))
  const state = report.end({ isDryRun: dryRun })
  if (json) stdout.write(`${JSON.stringify(report.view(state))}\n`)
  if (state === 'failed' || (dryRun && isRefused)) process.exitCode = 1
  if (state === 'left') process.exitCode = 3
}

function thisMachine(): Machine {
  const isRoot = process.getuid?.() === 0
  return { isRoot, addresses: machineAddresses(), clock: systemClock }
}

const isChange = ({ kind }: FileChange) => kind !== 'keep'

/** One setup, with all that its steps need. */
interface Site extends CommandContext {
  readonly answers: SetupAnswers
  readonly plan: SetupPlan
  readonly run: SetupRun
  readonly machine: Machine
  readonly report: SetupReport
  readonly isManaged: boolean
}

/** A cluster would begin empty beside the records that this gateway has. */
function refuseOtherRecords({ changed, config }: SetupPlan, { database }: SetupAnswers): void {
  const isJoining = database !== undefined && 'GATEWAY_DATABASE_URL' in changed
  if (!isJoining || !existsSync(join(config.dataDir, 'gateway.db'))) return
  throw new StartError(
    `This gateway has records in ${config.dataDir}. Move them into the database with device-agent gateway ` +
      'migrate, then run this command again. Nothing was written.',
  )
}

/** Checks before anything is written. Returns whether one of them has failed. */
async function preflight(site: Site, root: string): Promise<boolean> {
  const { plan, machine, report, stop } = site
  const { config } = plan
  const listeners: readonly (PlannedListener | undefined)[] = [
    { setting: 'GATEWAY_HTTP_LISTEN', address: config.httpListen, option: '--http-port' },
    { setting: 'GATEWAY_HTTPS_LISTEN', address: config.httpsListen, option: '--https-port' },
    { setting: 'GATEWAY_AGENT_LISTEN', address: config.agentListen, option: '--agent-port' },
    { setting: 'GATEWAY_API_LISTEN', address: config.apiListen, option: 'GATEWAY_API_LISTEN' },
    config.dnsListen && {
      ...{ setting: 'GATEWAY_DNS_LISTEN', address: config.dnsListen, option: '--dns-listen' },
    },
  ]
  const findings = [
    ...(await portChecks(
      listeners.filter((it) => it !== undefined),
      root,
    )),
    await clockCheck(config, machine.clock, stop),
  ]
  report.findings(findings)
  return findings.some(({ outcome }) => outcome === 'bad')
}

/** A certificate of the future is refused by all devices, and the authority refuses old requests. */
async function clockCheck(
  { acme }: Config['gateway'],
  clock: Clock,
  stop: AbortSignal,
): Promise<Finding> {
  const check = 'clock'
  if (!acme) return skipped(check, 'skipped, no ACME authority to compare with')
  const theirs = await readServiceDate([{ url: acme.directoryUrl }], stop)
  const { host } = new URL(acme.directoryUrl)
  if (theirs === undefined) {
    const remedy =
      'Check the network of this machine, and --acme-directory. Without both --email and --acme-directory, the gateway uses its own CA.'
    return bad('ACME authority', `${host} does not answer`, remedy)
  }
  const skewMs = clock.now() - theirs
  if (Math.abs(skewMs) <= CLOCK_TOLERANCE_MS) return good(check, `matches ${host}`)
  const flaw = `${formatDuration(Math.abs(skewMs))} ${skewMs > 0 ? 'ahead of' : 'behind'} ${host}`
  return bad(check, flaw, 'Set the clock of this machine: sudo timedatectl set-ntp true.')
}

/** All steps with a running gateway. */
async function finish(site: Site, gateway: RunningGateway, isChanged: boolean): Promise<void> {
  const { plan, answers, run, machine, report, isManaged } = site
  const { clock } = machine
  const until = run.wait === true ? Number.POSITIVE_INFINITY : clock.monotonic() + (run.wait ?? 0)
  const leftMs = (leastMs: number) => Math.max(until - clock.monotonic(), leastMs)
  const notReady = await gateway.ready(isManaged ? START_MS : leftMs(0))
  if (notReady) {
    const text = `The gateway does not serve yet: ${notReady.reason}.`
    if (isManaged) report.fail(`${text} See the log: journalctl --unit ${SERVICE}.`)
    else {
      const verb = notReady.isOutdated ? 'Restart' : 'Start'
      report.left(`${text} ${verb} it as shown above, then run this command again.`)
    }
    report.names(await checkNames(site, nameCheckOf(site), undefined, []), isCluster(site))
    return
  }
  report.findings([good('gateway', 'ready')])
  const { domain, isNew } = await gateway.domain(answers.domain)
  if (isNew) report.step(`reserve      ${answers.domain}`)
  const areNamesGood = await waitForNames(site, gateway, domain, until)
  const isOrdered = plan.config.acme !== undefined && areNamesGood
  const name = isOrdered
    ? await certify(site, gateway, { domain, isNew }, leftMs(ISSUE_MS))
    : answers.domain
  if (plan.config.acme && !isOrdered)
    report.left(
      'Public certificates follow when the DNS records are right. Then run this command again with the same options.',
    )
  await showVisitors(site, gateway, name)
  await inviteDevice(site, isNew || isChanged)
}

/** A first device after a change. Later runs create no invitation that is not asked for. */
async function inviteDevice(site: Site, hasChanged: boolean): Promise<void> {
  const { answers, report, run } = site
  if (!hasChanged || run.json) return report.inviteHint()
  report.step('')
  await invite({ ...site, stdout: report.out }, { domain: answers.domain, count: 1 })
}

const isCluster = ({ plan }: Site) => plan.config.shared !== undefined

function nameCheckOf(site: Site): NameCheck {
  const { plan, machine } = site
  const { config } = plan
  const given = config.publicNames.map(({ host }) => host).filter((host) => isIP(host) !== 0)
  return new NameCheck({
    dnsServers: config.dnsServers,
    publicAddresses: given,
    machineAddresses: machine.addresses,
    isCluster: isCluster(site),
  })
}

/** Without a domain of a running gateway, the records of challenges are not known yet. */
async function checkNames(
  site: Site,
  names: NameCheck,
  domain: GatewayDomain | undefined,
  proven: readonly string[],
): Promise<NameFinding[]> {
  const { name, domain: wildcard } = site.answers
  const { config } = site.plan
  const target = config.sharedCnameTarget ?? name
  const found = [names.publicName(name, proven), names.wildcard(wildcard, target, proven)]
  if (config.acme && domain && isByDns(site, domain)) {
    const { cnameBase } = config
    const challenge = `_acme-challenge.${wildcard.slice(2)}`
    found.push(
      names.delegation(`acme.${cnameBase}`, cnameBase),
      names.cname(challenge, domain.acme_challenge_cname_target),
    )
  }
  return Promise.all(found)
}

/** Checks DNS until it is right, or the time is over. Returns whether it is right. */
async function waitForNames(
  site: Site,
  gateway: RunningGateway,
  domain: GatewayDomain,
  until: number,
): Promise<boolean> {
  const { answers, machine, report, stop } = site
  const { clock } = machine
  const names = nameCheckOf(site)
  const proven = new Set<string>()
  for (;;) {
    const found = await checkNames(site, names, domain, [...proven])
    const before = proven.size
    for (const address of new Set(found.flatMap(({ foreign }) => foreign))) {
      if (await gateway.answersAt(address, answers.name)) proven.add(address)
    }
    if (proven.size > before) continue
    report.names(found, isCluster(site))
    if (found.every(({ finding }) => finding.outcome === 'good')) return true
    if (clock.monotonic() >= until) break
    report.waiting(DNS_POLL_MS)
    await clock.sleep(DNS_POLL_MS, stop).catch(() => {})
    if (stop.aborted) break
  }
  const address = site.plan.config.publicNames.find(({ host }) => isIP(host) !== 0)
  const devices = address
    ? `Devices can join by its address ${address.host} now. Visitors need the name.`
    : 'Devices can use the gateway as soon as its name is there.'
  report.left(`Add the DNS records above, then run this command again. ${devices}`)
  return false
}

/**
 * Orders a certificate and returns its name. With a DNS server for challenges it is the wildcard. Otherwise
 * devices get certificates on demand, and the name of the gateway shows that orders succeed.
 */
async function certify(
  site: Site,
  gateway: RunningGateway,
  reserved: Reserved,
  withinMs: number,
): Promise<string> {
  const { answers, report } = site
  const { email, acmeDirectory, dnsListen } = answers
  const isAsked = [email, acmeDirectory, dnsListen].some((it) => it !== undefined)
  /** What the owner has chosen for a domain stays, unless this run asks for certificates. */
  const isKept = ({ domain, isNew }: Reserved) => {
    const isOwnCa = domain.certificate_management_policy.authority === 'gateway'
    return isOwnCa && !isNew && !isAsked
  }
  if (isKept(reserved)) return answers.domain
  const challenge = isByDns(site, reserved.domain) ? 'dns-01' : 'on-demand'
  const domains = [reserved]
  if (challenge === 'on-demand') {
    const own = await gateway.domain(answers.name)
    if (own.isNew) report.step(`reserve      ${answers.name}`)
    domains.push(own)
  }
  for (const it of domains) {
    const { authority, challenge: now } = it.domain.certificate_management_policy
    if ((authority !== 'gateway' && now === challenge) || !(it.isNew || isAsked)) continue
    await gateway.usePublicAuthority(it.domain, challenge)
    report.step(`order        certificates for ${it.domain.domain} (${challenge})`)
  }
  const last = domains.at(-1) ?? reserved
  const name = last.domain.domain
  if (isKept(last)) return name
  const result = await gateway.certificate(name, withinMs)
  if (result.state === 'ordered') {
    report.left('The certificate is ordered. Run this command again to see the result.')
  } else if (result.state === 'failed') {
    report.left(
      `The certificate of ${name} was not issued: ${result.reason} Correct this, then run this command again.`,
    )
  }
  return name
}

/** A choice that the owner has made for the domain stays, unless this run names a DNS server. */
function isByDns({ answers, plan: { config } }: Site, domain: GatewayDomain): boolean {
  if (!config.dnsListen) return false
  const { authority, challenge } = domain.certificate_management_policy
  return answers.dnsListen !== undefined || authority === 'gateway' || challenge === 'dns-01'
}

/** Shows the certificate that visitors get. */
async function showVisitors(
  { plan, report }: Site,
  gateway: RunningGateway,
  shown: string,
): Promise<void> {
  const certificate = await gateway.visitorCertificate(shown)
  if (!certificate) {
    const remedy = `Check the log: journalctl --unit ${SERVICE}.`
    report.findings([bad('https', 'the gateway does not answer', remedy)])
    report.fail('The gateway does not answer over HTTPS.')
    return
  }
  const { issuer, endsAt } = certificate
  report.findings([good('https', `certificate of ${issuer} for ${shown}, until ${endsAt}`)])
  if (!plan.config.acme && !plan.config.tls) report.ownCa()
}
