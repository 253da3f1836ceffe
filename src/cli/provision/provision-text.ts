import { isThisMachine } from '../../base/net/public-names.ts'
import { plainLine, shownPath } from '../local/terminal-text.ts'
import type { ReservedDomain } from './account.ts'
import type { ProvisionResult } from './provision-all.ts'
import type { Step } from './provision-device.ts'

/** A record to add at the DNS provider. */
export interface DnsRecord {
  readonly type: 'CNAME'
  readonly name: string
  readonly value: string
}

/** DNS records of the domains. A domain of the service itself needs none. */
export function dnsRecords(domains: readonly ReservedDomain[]): DnsRecord[] {
  return domains.flatMap((reserved) => {
    const { domain, cname_target, acme_challenge_cname_target } = reserved
    const challenge = `_acme-challenge.${domain.replace(/^\*\./, '')}`
    const policy = reserved.certificate_management_policy
    const isByDns = policy?.authority !== 'gateway' && policy?.challenge !== 'on-demand'
    return [
      ...recordFor(domain, cname_target),
      ...(isByDns ? recordFor(challenge, acme_challenge_cname_target) : []),
    ]
  })
}

/** Text for people: all steps for one device, or a line for each of many. */
export function describeProvision(result: ProvisionResult, dryRun: boolean): string {
  const { domains, domainSteps, devices } = result
  const deviceSteps = devices.flatMap(({ device, steps }): readonly Step[] => {
    if (devices.length === 1 || steps.length === 0) return steps
    return [{ action: wholeOf(steps), subject: device.envPath }]
  })
  const lines = [...domainSteps, ...deviceSteps].map((step) => stepLine(step, dryRun))
  const records = dnsRecords(domains).map(({ type, name, value }) => {
    return { type, name: plainLine(name), value: plainLine(value) }
  })
  if (records.length > 0) lines.push('', 'Create these records at the DNS provider:', '')
  const width = Math.max(0, ...records.map(({ name }) => name.length))
  lines.push(
    ...records.map(({ type, name, value }) => `  ${name.padEnd(width)}  ${type}  ${value}`),
  )
  return lines.map((line) => `${line}\n`).join('')
}

/** Devices without anything to retire, one line each. */
export function describeUnknown({ devices }: ProvisionResult, listPath: string): string {
  const unknown = devices.filter(({ steps, error }) => steps.length === 0 && error === undefined)
  return unknown
    .map(({ device: { name } }) => {
      return `device-agent: ${name}: nothing to retire. No authtoken, no file and no entry of ${shownPath(listPath)} has this name.\n`
    })
    .join('')
}

/** All that was done to one device, in a word. */
function wholeOf(steps: readonly Step[]): Step['action'] {
  if (steps.every(({ action }) => action === 'keep')) return 'keep'
  // Files are taken away where a device is taken out of service alone.
  return steps.some(({ action }) => action === 'delete') ? 'delete' : 'write'
}

/** Remedies, one line for each failed device. */
export function describeFailures({ devices }: ProvisionResult): string {
  const failed = devices.filter(({ error }) => error !== undefined)
  return failed.map(({ device, error }) => `device-agent: ${device.name}: ${error}\n`).join('')
}

/** For programs, as one line. It holds no token: that is in the files. */
export function provisionJson(result: ProvisionResult, apiUrl: string, dryRun: boolean): string {
  const { domains, domainSteps, devices } = result
  return JSON.stringify({
    api_url: apiUrl,
    dry_run: dryRun,
    domains: domainSteps,
    dns_records: dnsRecords(domains),
    devices: devices.map(({ device, steps, credentialId, error = null }) => ({
      name: device.name,
      domain: device.domain,
      agent_domain: device.agentDomain,
      env_file: device.envPath,
      credential_id: credentialId,
      steps,
      error,
    })),
  })
}

function stepLine({ action, subject }: Step, dryRun: boolean): string {
  const verb = dryRun && action !== 'keep' ? `would ${action}` : action
  return plainLine(`${verb.padEnd(14)}${subject.startsWith('/') ? shownPath(subject) : subject}`)
}

/** A target below `localhost`, the default of a gateway without a public name, leads nowhere. */
function recordFor(name: string, value: string | null | undefined): DnsRecord[] {
  return value && !isThisMachine(value) ? [{ type: 'CNAME', name, value }] : []
}
