import { readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import {
  formatListenAddress,
  type ListenAddress,
  listenOn,
  listenProblem,
} from '../../base/listen-address.ts'
import { bad, type Finding, good } from '../doctor/finding.ts'
import { nameOf, ownersOf, type PortOwner, userText } from '../local/port-owners.ts'

/** A listener of the gateway, and the option that changes its port. */
export interface PlannedListener {
  readonly setting: string
  readonly address: ListenAddress
  readonly option: string
}

/** Whether the gateway could listen at each address: free, or taken by this gateway. */
export async function portChecks(
  listeners: readonly PlannedListener[],
  root: string,
): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const listener of listeners) findings.push(await portCheck(listener, root))
  return findings
}

async function portCheck(
  { setting, address, option }: PlannedListener,
  root: string,
): Promise<Finding> {
  const check = `port ${address.port}`
  const where = formatListenAddress(address)
  const server = createServer()
  try {
    await listenOn(server, address)
    return good(check, `${where} is free`)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code !== 'EADDRINUSE') {
      const remedy = code === 'EACCES' ? 'Run this command with sudo.' : `Change ${setting}.`
      return bad(check, `cannot listen on ${where}: ${listenProblem(error)}`, remedy)
    }
    const owners = ownersOf(address.port)
    if (owners.some((owner) => isGateway(owner, address, root)))
      return good(check, `${where} is used by this gateway`)
    const [owner] = owners
    const remedy = `Stop ${owner ? nameOf(owner) : 'that program'}, or choose another port with ${option}.`
    return bad(check, `${where} is used by ${userText(owner)}`, remedy)
  } finally {
    server.close()
  }
}

/** A gateway of this program, or systemd with the sockets of the gateway. */
function isGateway({ pid, command }: PortOwner, address: ListenAddress, root: string): boolean {
  if (pid === 1) {
    const line = new RegExp(`^ListenStream=.*:${address.port}$`, 'm')
    return SOCKET_UNITS.some((path) => line.test(textOf(join(root, path))))
  }
  const program = command.findIndex((word) => /(^|\/)(main\.js|device-agent)$/.test(word))
  return program >= 0 && command[program + 1] === 'gateway'
}

const SOCKET_UNITS = [
  '/etc/systemd/system/device-gateway.socket',
  '/usr/lib/systemd/system/device-gateway.socket',
]

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
