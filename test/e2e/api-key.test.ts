import { chmodSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Device } from '../helpers/device.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

async function startDevice(folder: string): Promise<Device> {
  const device = await Device.start(folder)
  onTestFinished(() => device.program.end().then(() => undefined))
  return device
}

/** The names that the key lets somebody see. */
async function reservedDomains({ up }: Device): Promise<string[]> {
  const response = await fetch(`${up.management_api}/reserved_domains`, {
    headers: { authorization: `Bearer ${up.api_key}`, 'svc-version': '2' },
  })
  const { reserved_domains } = (await response.json()) as { reserved_domains: { domain: string }[] }
  return reserved_domains.map(({ domain }) => domain)
}

describe('the API key that `up` hands out', () => {
  it('opens the management API, stays the same, and is for its owner alone', async () => {
    const folder = temporaryFolder()
    const first = await startDevice(folder)
    expect(await reservedDomains(first)).toEqual([first.up.reserved_domain])
    const { stderr } = await first.program.end()
    expect(stderr).not.toContain(first.up.api_key)
    expect(statSync(join(folder, 'data/gateway/api-key')).mode & 0o777).toBe(0o600)
    chmodSync(join(folder, 'data/gateway/api-key'), 0o644)
    const second = await startDevice(folder)
    expect(statSync(join(folder, 'data/gateway/api-key')).mode & 0o777).toBe(0o600)
    expect(second.up.api_key).toBe(first.up.api_key)
    expect(await reservedDomains(second)).toEqual([first.up.reserved_domain])
  })
})
