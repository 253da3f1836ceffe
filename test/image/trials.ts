import { strict as assert } from 'node:assert'
import { chmodSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { imageLauncherText } from '../../packaging/image/launcher.ts'
import { eventually } from '../helpers/eventually.ts'
import { expectDone } from './engine.ts'
import { GATEWAY, type House } from './house.ts'

export interface Trial {
  readonly name: string
  readonly run: (house: House, folder: string) => Promise<void>
}

/** In this order: each finds what the one before it leaves. */
export const TRIALS: readonly Trial[] = [
  {
    name: 'a visitor reaches a service of a device, by the DNS name of the gateway and with mounted secrets',
    run: async (house) => {
      await house.startGateway()
      await house.startService()
      await house.startAgent()
      await house.whenHealthy('agent')
      await house.addTunnel()
      await house.whenVisited()
      expectDone('doctor', await house.engine.agent('agent', 'doctor'))
    },
  },
  {
    name: 'both services run without root and capabilities, on a read-only root, with the flags of their units',
    run: async ({ engine }) => {
      const flags = JSON.parse(imageLauncherText().match(/^const flags = (.*)$/m)?.[1] ?? '')
      for (const [name, command] of [
        [GATEWAY, 'gateway'],
        ['agent', 'run'],
      ] as const) {
        const script = `
          const { readFileSync, writeFileSync } = require('node:fs')
          const [, uid] = /^Uid:\\s+(\\d+)/m.exec(readFileSync('/proc/1/status', 'utf8'))
          const [, capabilities] = /^CapEff:\\s+(\\w+)/m.exec(readFileSync('/proc/1/status', 'utf8'))
          let refused
          try { writeFileSync('/etc/odd', '') } catch ({ code }) { refused = code }
          const args = readFileSync('/proc/1/cmdline', 'utf8').split('\\0').slice(1, -1)
          console.log(JSON.stringify({ uid, capabilities: Number('0x' + capabilities), refused, args }))`
        const seen = JSON.parse(expectDone('node', await engine.node(name, script)).stdout)
        const args = [...flags[command], '/usr/lib/device-agent/dist/main.js', command]
        assert.deepEqual(seen, { uid: '65532', capabilities: 0, refused: 'EROFS', args })
      }
    },
  },
  {
    name: 'the key that is shown opens the management API',
    run: async (house) => {
      const key = (await house.shown('api-key')).trim()
      const url = `http://${await house.engine.address(GATEWAY)}:8070/devices`
      const headers = { authorization: `Bearer ${key}`, 'svc-version': '2' }
      assert.equal((await fetch(url, { headers })).status, 200)
    },
  },
  {
    name: 'SIGHUP changes nothing: a container is replaced, not reloaded',
    run: async (house) => {
      await house.engine.podman('kill', '--signal', 'HUP', GATEWAY)
      await house.whenVisited()
      await house.whenHealthy(GATEWAY, '--gateway')
    },
  },
  {
    name: 'a stop lets a request end, and ends with 0',
    run: async (house) => {
      const { engine } = house
      const slow = house.visit('/slow')
      await eventually(async () => assert.equal(await house.service('/held'), '1'))
      const stopped = engine.podman('stop', '--time', '60', 'agent')
      await eventually(async () => assert.match(await engine.log('agent'), /"msg":"stopping"/))
      await house.service('/release')
      assert.deepEqual(await slow, { status: 200, text: 'at last' })
      await stopped
      assert.equal(await engine.exitCode('agent'), 0)
      await engine.podman('start', 'agent')
      await house.whenVisited()
    },
  },
  {
    name: 'a kill of either loses nothing: the same volume serves again',
    run: async (house) => {
      for (const name of ['agent', GATEWAY]) {
        await house.engine.podman('kill', '--signal', 'KILL', name)
        await house.engine.podman('wait', name)
        await house.engine.podman('start', name)
        await house.whenVisited()
      }
    },
  },
  {
    name: 'a new container on the same volume, as an upgrade makes it, keeps certificate, devices and tunnels',
    run: async (house) => {
      const before = await house.shown('ca')
      await house.engine.podman('rm', '--force', '--time', '30', GATEWAY)
      // Takes the address that the gateway had.
      await house.engine.start({
        name: 'another',
        command: [
          '--eval',
          'setInterval(() => {}, 1e9); process.on("SIGTERM", () => process.exit())',
        ],
        options: ['--entrypoint', '/usr/lib/device-agent/bin/node'],
      })
      await house.startGateway()
      assert.equal(await house.shown('ca'), before)
      await house.whenVisited()
      await house.engine.podman('rm', '--force', '--time', '30', 'agent')
      await house.startAgent()
      await house.whenVisited()
    },
  },
  {
    name: 'a second agent on the same volume is refused with a reason',
    run: async ({ engine }) => {
      const second = await engine.once(['--volume', 'agent:/data'], ['run'])
      assert.equal(second.code, 1)
      assert.match(second.stderr, /data\/agent/)
      assert.match(second.stderr, /another|already/i)
    },
  },
  {
    name: 'a user that only the engine knows can write, on a new volume and in a mounted folder of group 0',
    run: async ({ engine }, folder) => {
      const mounted = join(folder, 'mounted')
      mkdirSync(mounted)
      chmodSync(mounted, 0o770)
      for (const volume of ['foreign', mounted]) {
        const name = 'foreign'
        const options = ['--user', '12345', '--volume', `${volume}:/data`]
        await engine.start({ name, command: ['gateway'], options })
        await eventually(async () => {
          expectDone(await engine.log(name), await engine.agent(name, 'health', '--gateway'))
        })
        expectDone('show', await engine.agent(name, 'gateway', 'show', 'api-key'))
        await engine.podman('rm', '--force', '--time', '30', name)
      }
    },
  },
  {
    name: 'the image names itself, its parts and their terms',
    run: async ({ engine }) => {
      const script = `
        const { readFileSync, existsSync } = require('node:fs')
        const docs = '/usr/share/doc/'
        const bom = JSON.parse(readFileSync(docs + 'device-agent/sbom.cdx.json'))
        const debs = bom.components.filter(({ purl }) => purl.startsWith('pkg:deb/'))
        for (const { name } of debs) readFileSync(docs + name + '/copyright')
        for (const name of ['LGPL-2.1', 'GPL-3', 'Apache-2.0']) readFileSync('/usr/share/common-licenses/' + name)
        const notices = readFileSync(docs + 'device-agent/NOTICES.txt', 'utf8').length
        console.log(JSON.stringify({ debs: debs.length, all: bom.components.length, notices, shell: existsSync('/bin/sh') }))`
      const options = ['--entrypoint', '/usr/lib/device-agent/bin/node']
      const seen = JSON.parse(
        expectDone('node', await engine.once(options, ['--eval', script])).stdout,
      )
      assert.equal(seen.debs, 6)
      assert.ok(seen.all > 30 && seen.notices > 10_000, JSON.stringify(seen))
      assert.equal(seen.shell, false)
    },
  },
]
