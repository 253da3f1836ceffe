import { strict as assert } from 'node:assert'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse, stringify } from 'yaml'
import { ROOT } from '../../packaging/project.ts'
import { eventually } from '../helpers/eventually.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { type Engine, expectDone, run } from './engine.ts'

const NAME = 'gateway.example.com'
const HOST = 'hello.site.example.com'
const SETTINGS = {
  PUBLIC_NAME: NAME,
  DOMAIN: '*.site.example.com',
  UPSTREAM: 'web:8000',
}
const SERVICE = "require('node:http').createServer((_, it) => it.end('hello')).listen(8000)"

type Services = Record<string, Record<string, unknown>>

/**
 * Both compose files as one project, with a service beside them. Left out: ports, because this machine may use them,
 * and the name of the machine, which podman 4.3 does not know. The container of the gateway has its public name.
 */
function project(): string {
  const servicesOf = (name: string) => {
    const text = readFileSync(join(ROOT, 'packaging/compose', name), 'utf8')
    return (parse(text, { merge: true }) as { services: Services }).services
  }
  const { gateway, agent } = { ...servicesOf('gateway.yaml'), ...servicesOf('agent.yaml') }
  if (!gateway || !agent) throw new Error('the compose files have other services')
  const { ports: _ports, ...inside } = gateway
  const { extra_hosts: _hosts, ...device } = agent
  const web = {
    image: gateway.image,
    entrypoint: ['/usr/lib/device-agent/bin/node', '--eval', SERVICE],
    command: [],
    init: true,
  }
  const services = {
    gateway: { ...inside, container_name: NAME },
    agent: { ...device, container_name: 'composed-agent' },
    web: { ...web, container_name: 'web' },
  }
  return stringify({ services, volumes: { data: {} } })
}

/** Runs the compose files of the project by podman-compose. */
export async function tryCompose(engine: Engine, work: string): Promise<void> {
  const folder = join(work, 'composed')
  mkdirSync(folder)
  const file = join(folder, 'compose.yaml')
  writeFileSync(file, project())
  const podman = join(folder, 'podman')
  writeFileSync(podman, `#!/bin/sh\nexec podman ${engine.globals.join(' ')} "$@"\n`, {
    mode: 0o755,
  })
  writeFileSync(join(folder, 'join'), '')
  const limits = '--ulimit nofile=4096:4096 --ulimit nproc=4096:4096'
  const compose = async (...args: string[]) => {
    const options = ['--podman-path', podman, '--file', file, '--podman-run-args', limits]
    const did = expectDone(
      'podman-compose',
      await run('podman-compose', [...options, ...args], SETTINGS),
    )
    // It ends with 0 also when a container could not be created.
    assert.doesNotMatch(did.stdout, /^exit code: [^0]/m, did.stderr)
  }
  const healthy = (name: string, ...options: string[]) =>
    eventually(async () => {
      expectDone(await engine.log(name), await engine.agent(name, 'health', ...options))
    })
  const shown = async (what: string) =>
    expectDone(what, await engine.agent(NAME, 'gateway', 'show', what)).stdout

  // The gateway of the other trials has the same name, and would answer in its place.
  await engine.podman('rm', '--all', '--force', '--time', '0')
  await compose('up', '--detach', 'gateway', 'web')
  await healthy(NAME, '--gateway')
  const wish = ['--name', 'composed', '--domain', '*.site.example.com', '--allow', HOST, '--json']
  const invited = await engine.agent(NAME, 'gateway', 'invite', ...wish)
  const { join_string: joinString } = JSON.parse(expectDone('gateway invite', invited).stdout)
  writeFileSync(join(folder, 'join'), `${joinString}\n`)
  await compose('up', '--detach', 'agent')
  await healthy('composed-agent')
  const added = await engine.agent('composed-agent', 'tunnels', 'add', HOST, 'web:8000')
  expectDone('tunnels add', added)
  const ca = await shown('ca')
  const address = await engine.address(NAME)
  await eventually(async () => {
    const asked = { ingress: `https://${address}`, address, host: HOST, ca }
    assert.equal((await publicRequest(asked)).text, 'hello')
  })
  await compose('down', '--volumes')
}
