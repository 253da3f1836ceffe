import { dirname } from 'node:path'
import { SECRET_SETTINGS } from '../../settings/settings.ts'
import { findingText } from '../doctor/doctor.ts'
import type { Finding } from '../doctor/finding.ts'
import { type Paint, paintFor, plainLine } from '../local/terminal-text.ts'
import type { EnvSettings } from '../provision/env-file.ts'
import type { DnsRecord, NameFinding } from './name-check.ts'

export type SetupState = 'done' | 'left' | 'failed' | 'dry-run'

/** Output of `gateway setup --json`, on one line. */
export interface SetupView {
  readonly state: SetupState
  /** Settings that were added or changed. Secrets are masked. */
  readonly settings: Readonly<Record<string, string>>
  readonly findings: readonly Finding[]
  /** DNS records to add. */
  readonly records: readonly DnsRecord[]
  readonly left: readonly string[]
  readonly failures: readonly string[]
}

export interface SetupReportOptions {
  readonly out: NodeJS.WritableStream
  readonly environment: Readonly<Record<string, string | undefined>>
}

/** Tells each step of a setup as it happens, and collects the result. */
export class SetupReport {
  readonly out: NodeJS.WritableStream
  readonly #paint: Paint
  /** The last finding of each check. */
  readonly #findings = new Map<string, Finding>()
  #settings: Readonly<Record<string, string>> = {}
  #records: readonly DnsRecord[] = []
  readonly #left: string[] = []
  readonly #failures: string[] = []

  constructor({ out, environment }: SetupReportOptions) {
    this.out = out
    this.#paint = paintFor(out, environment)
  }

  /** Findings that were told before are not repeated. */
  findings(findings: readonly Finding[]): void {
    for (const finding of findings) {
      const text = findingText(finding, this.#paint)
      const last = this.#findings.get(finding.check)
      if (!last || findingText(last, this.#paint) !== text) this.out.write(text)
      this.#findings.set(finding.check, finding)
    }
  }

  settings(changed: EnvSettings): void {
    const shown = Object.entries(changed).map(([name, value = '']) => {
      return [name, SECRET_SETTINGS.includes(name) ? '***' : value] as const
    })
    this.#settings = Object.fromEntries(shown)
    if (shown.length === 0) return
    const lines = shown.map(([name, value]) => `  ${name}=${plainLine(value)}\n`)
    this.out.write(`\nSettings:\n\n${lines.join('')}\n`)
  }

  unchanged({ isOutdated }: { readonly isOutdated: boolean }): void {
    const text = isOutdated
      ? 'No file changed, but the gateway still has its earlier settings: it needs a restart.'
      : 'Nothing changed: the settings and the service are up to date.'
    this.out.write(`\n${text}\n\n`)
  }

  step(text: string): void {
    this.out.write(`${plainLine(text)}\n`)
  }

  names(found: readonly NameFinding[], isCluster: boolean): void {
    this.findings(found.map(({ finding }) => finding))
    const records = found.flatMap((it) => it.records)
    const isNew = JSON.stringify(records) !== JSON.stringify(this.#records)
    this.#records = records
    if (isNew && records.length > 0) this.out.write(recordsText(records, isCluster))
  }

  waiting(everyMs: number): void {
    this.step(`Waiting for DNS, next check in ${everyMs / 1_000} s. Stop with Ctrl+C.`)
  }

  /** Without a service manager. */
  startCommand(dataDir: string, isChanged: boolean): void {
    const env = '/etc/device-gateway/gateway.env'
    this.out.write(
      `\nsystemd is not running on this machine. ${isChanged ? 'Start or restart' : 'Start'} the gateway with your supervisor:\n\n` +
        `  sh -c 'set -a; . ${env}; STATE_DIRECTORY=${dirname(dataDir)} exec device-agent gateway'\n\n`,
    )
  }

  ownCa(): void {
    this.step(
      "Browsers do not trust the gateway's own CA. For public certificates, run this command again with --email.",
    )
  }

  inviteHint(): void {
    this.step('Add a device: sudo device-agent gateway invite')
  }

  left(text: string): void {
    this.#left.push(text)
  }

  fail(text: string): void {
    this.#failures.push(text)
  }

  /** Tells the rest, and returns the result. */
  end({ isDryRun }: { readonly isDryRun: boolean }): SetupState {
    const texts = [...this.#failures, ...this.#left]
    const state = this.#failures.length > 0 ? 'failed' : this.#left.length > 0 ? 'left' : 'done'
    const heading = state === 'failed' ? 'Failed:' : 'Left to do:'
    if (texts.length > 0)
      this.out.write(`\n${heading}\n\n${texts.map((text) => `  - ${plainLine(text)}\n`).join('')}`)
    if (isDryRun && state === 'done') {
      const problems = [...this.#findings.values()].filter(({ outcome }) => outcome === 'bad')
      const hint = problems.length === 0 ? '' : ` Failed checks: ${problems.length}.`
      this.out.write(`\nDry run: nothing was written.${hint}\n`)
      return 'dry-run'
    }
    if (state === 'done') this.out.write('\nDone.\n')
    return state
  }

  view(state: SetupState): SetupView {
    return {
      state,
      settings: this.#settings,
      findings: [...this.#findings.values()],
      records: this.#records,
      left: this.#left,
      failures: this.#failures,
    }
  }
}

function recordsText(records: readonly DnsRecord[], isCluster: boolean): string {
  const width = Math.max(...records.map(({ name }) => name.length)) + 1
  const lines = records.map(({ name, type, value }) => {
    const target = type === 'A' || type === 'AAAA' ? value : `${value}.`
    return `  ${`${name}.`.padEnd(width)}  ${type.padEnd(5)}  ${target}\n`
  })
  const others = isCluster ? ', and keep those of the other gateways' : ''
  return `\nAdd these records at the DNS provider${others}:\n\n${lines.join('')}\n`
}
