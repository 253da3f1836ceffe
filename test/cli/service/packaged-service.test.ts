import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { installedSystem } from '../../helpers/installed-system.ts'

it('does not call a service of the Debian package missing', async () => {
  const { root, run } = installedSystem()
  const units = join(root, 'usr/lib/systemd/system')
  mkdirSync(units, { recursive: true })
  rmSync(join(root, 'etc/systemd/system/device-agent.service'))
  const none = await run('service', 'uninstall', '--root', root)
  expect(none.stdout).toBe('device-agent is not installed.\n')
  writeFileSync(join(units, 'device-agent.service'), '')
  const { error } = await run('service', 'uninstall', '--root', root)
  expect(error).toContain('sudo systemctl disable --now device-agent')
  expect(error).toContain('sudo apt remove device-agent')
})

it.each([
  [
    ['gateway', 'status'],
    'there is no service. Run device-agent health --gateway for the gateway.',
  ],
  [['service', 'status'], 'there is no service. Run device-agent status for the agent.'],
])('names the check of a program without systemd: %j', async (args, advice) => {
  const { root, run } = installedSystem()
  const refusal = '#!/bin/sh\necho "System has not been booted with systemd" >&2\nexit 1\n'
  writeFileSync(join(root, 'bin/systemctl'), refusal)
  const { error } = await run(...args)
  expect(error).toContain(advice)
  expect(error).not.toContain('--root')
})
