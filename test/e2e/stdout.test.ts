import { expect, it } from 'vitest'
import { Device } from '../helpers/device.ts'
import { eventually } from '../helpers/eventually.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

it('has one line with --json, also when the link breaks', async () => {
  const device = await Device.start(temporaryFolder())
  const manage = (method: string, path: string) =>
    fetch(`${device.up.management_api}${path}`, {
      method,
      headers: { authorization: `Bearer ${device.up.api_key}`, 'svc-version': '2' },
    })
  const listed = await (await manage('GET', '/credentials')).json()
  const [credential] = (listed as { credentials: { id: string }[] }).credentials
  expect((await manage('DELETE', `/credentials/${credential?.id}`)).status).toBe(204)
  await eventually(async () => {
    const { link } = JSON.parse((await device.api('GET', '/status')).text)
    expect(link.reason).toBe('auth')
  })
  const { code, stdout } = await device.program.end()
  expect([code, stdout.split('\n')]).toEqual([0, [JSON.stringify(device.up)]])
})
