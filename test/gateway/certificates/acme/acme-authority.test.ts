import { Resolver } from 'node:dns/promises'
import { expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { Closer } from '../../../../src/base/closer.ts'
import { formatListenAddress } from '../../../../src/base/listen-address.ts'
import { openAcme } from '../../../../src/gateway/certificates/acme/acme-authority.ts'
import type { OrderBook } from '../../../../src/gateway/certificates/acme/order-book.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { temporaryFolder } from '../../../helpers/temporary-folder.ts'

const ANY_PORT = { host: '127.0.0.1', port: 0 }

it('asks the other gateways for no more than the challenges that somebody wants to see', async () => {
  const { log } = captureLog()
  const closer = new Closer(log)
  onTestFinished(() => closer.close())
  const asked: string[] = []
  const book = {
    zone: async (name: string) => {
      asked.push(name)
      return { name, valuesOf: () => ['value'] }
    },
  }
  const { dnsAddress = ANY_PORT } = await openAcme(
    {
      ...{ dataDir: temporaryFolder(), acme: undefined, dnsListen: ANY_PORT },
      ...{ cnameBase: 'gateway.test', clock: systemClock, log },
    },
    book as unknown as OrderBook,
    closer,
  )
  const resolver = new Resolver({ timeout: 60_000, tries: 1 })
  resolver.setServers([formatListenAddress(dnsAddress)])
  expect((await resolver.resolveSoa('acme.gateway.test')).nsname).toBe('gateway.test')
  await expect(resolver.resolve4('a1.acme.gateway.test')).rejects.toThrow('ENODATA')
  expect(asked).toEqual([])
  expect(await resolver.resolveTxt('a1.acme.gateway.test')).toEqual([['value']])
  expect(asked).toEqual(['acme.gateway.test'])
})
