import { relative } from 'node:path'
import type { ReservedDomain } from './account.ts'
import type { DeviceResult, ProvisionResult } from './provision-all.ts'
import type { Step } from './provision-device.ts'

/** A record to add at the DNS provider. */
export interface DnsRecord {
  readonly type: 'CNAME'
  readonly name: string
  readonly value: string
}

/** The records of the domains; a domain of the service itself needs none. */
export function dnsRecords(domains: readonly ReservedDomain[]): DnsRecord[] {
  return domains.flatMap(({ domain, cname_target, acme_challenge_cname_target }) => {
    const challenge = `_acme-challenge.${domain.replace(/^\*\./, '')}`
    return [
      ...(cname_target ? [record(domain, cname_target)] : []),
      ...(acme_challenge_cname_target ? [record(challenge, acme_challenge_cname_target)] : []),
    ]
  })
}

/** For people: what was done for one device step by step, for many in a line each. */
export function describeProvision(result: ProvisionResult, dryRun: boolean): string {
  const { domains, domainSteps, devices } = result
  const lines = domainSteps.map((step) => stepLine(step, dryRun))
  const [only] = devices
  if (only && devices.length === 1) {
    lines.push(...only.steps.map((step) => stepLine(step, dryRun)), ...failureLines(only))
  } else {
    lines.push(...devices.flatMap((device) => deviceLines(device, dryRun)))
  }
  const records = dnsRecords(domains)
  if (records.length > 0) lines.push('', 'These records have to be at the DNS provider:', '')
  const width = Math.max(0, ...records.map(({ name }) => name.length))
  lines.push(
    ...records.map(({ type, name, value }) => `  ${name.padEnd(width)}  ${type}  ${value}`),
  )
  return `${lines.join('\n')}\n`
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

function deviceLines(result: DeviceResult, dryRun: boolean): string[] {
  const { device, steps, error } = result
  if (error !== undefined) return failureLines(result)
  const isChanged = steps.some(({ action }) => action !== 'keep')
  const action = isChanged ? 'write' : 'keep'
  return [stepLine({ action, subject: `${device.name}: ${shown(device.envPath)}` }, dryRun)]
}

function failureLines({ device, error }: DeviceResult): string[] {
  return error === undefined
    ? []
    : [stepLine({ action: 'FAILED', subject: `${device.name}: ${error}` })]
}

function stepLine(step: { action: Step['action'] | 'FAILED'; subject: string }, dryRun = false) {
  const { action, subject } = step
  const verb = dryRun && action !== 'keep' ? `would ${action}` : action
  const isPath = action === 'write' || action === 'keep'
  return `${verb.padEnd(14)}${isPath && subject.startsWith('/') ? shown(subject) : subject}`
}

function record(name: string, value: string): DnsRecord {
  return { type: 'CNAME', name, value }
}

/** A path as one would type it in the current folder. */
function shown(path: string): string {
  const short = relative('.', path)
  return short.startsWith('..') ? path : short
}
