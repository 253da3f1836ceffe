import { resolve } from 'node:path'
import { describe, expect, it } from 'vitest'
import { type DeviceTemplate, planDevices } from '../../../src/cli/provision/device-plans.ts'

const TEMPLATE: DeviceTemplate = {
  domain: '*.site.test',
  agentDomain: undefined,
  tags: undefined,
  outputFolder: 'out',
  envPath: undefined,
  authtokenPath: undefined,
  serverAddr: undefined,
  caCertPath: undefined,
}

describe('planDevices', () => {
  it('gives devices that share a wildcard a name of their own below it', () => {
    const [first, second] = planDevices(['cam1', 'cam2'], TEMPLATE)
    expect(first).toMatchObject({ domain: '*.site.test', agentDomain: 'cam1.site.test' })
    expect(first?.envPath).toBe(resolve('out/cam1.env'))
    expect(second?.agentDomain).toBe('cam2.site.test')
  })

  it('gives each a wildcard of its own when the name stands in it', () => {
    const [device] = planDevices(['cam1'], { ...TEMPLATE, domain: '*.{name}.Site.test' })
    expect(device).toMatchObject({
      domain: '*.cam1.site.test',
      agentDomain: 'agent.cam1.site.test',
    })
  })

  it.each<[string, Partial<DeviceTemplate>, RegExp]>([
    ['a domain that is no wildcard', { domain: 'site.test' }, /is not a wildcard\. Use \*\.site/],
    ['an agent domain elsewhere', { agentDomain: 'a.other.test' }, /is not below \*\.site\.test/],
    ['one agent domain for all', { agentDomain: 'agent.site.test' }, /Put \{name\} into it/],
  ])('refuses %s', (_what, template, sentence) => {
    expect(() => planDevices(['cam1', 'cam2'], { ...TEMPLATE, ...template })).toThrow(sentence)
  })
})
