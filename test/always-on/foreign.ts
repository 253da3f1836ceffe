import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { publicRequest } from '../helpers/public-request.ts'
import type { AlwaysOnSite } from './always-on-site.ts'
import { until } from './until.ts'

const PROGRAM = join(import.meta.dirname, 'foreign-device.ts')
export const FOREIGN_HOST = 'foreign.site.localhost'

/** A device that knows nothing of `device-agent`; answers how it is ended. */
export async function startForeignDevice(site: AlwaysOnSite): Promise<() => Promise<void>> {
  const { agent_listen, ca_cert, authtoken_file } = site.ready
  const settings = [agent_listen, ca_cert, authtoken_file, FOREIGN_HOST, `${site.port}`]
  const child = spawn(process.execPath, ['--import', 'tsx', PROGRAM, ...settings], {
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const onExit = () => child.kill('SIGKILL')
  process.once('exit', onExit)
  await once(child.stdout, 'data')
  return async () => {
    process.off('exit', onExit)
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
  }
}

/** Resolves when visitors are served by it. */
export async function foreignServes({ ready }: AlwaysOnSite): Promise<void> {
  const ingress = ready.ingress_http
  await until('the foreign device serves', async () => {
    return (await publicRequest({ ingress, host: FOREIGN_HOST })).status === 200
  })
}
