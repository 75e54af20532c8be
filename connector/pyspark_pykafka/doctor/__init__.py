"""
Checks what a query needs: this machine, the brokers, the permissions. For `pykafka doctor`.
"""
