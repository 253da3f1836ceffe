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
