. /tmp/w-fuzz-scratch/env.sh
sed -e 's/("cpu","sim")/("cpu",)/' -e 's/if res\[0\].*$/pass/' -e 's/^import opsmith.*$//' /tmp/w-fuzz-scratch/crash1.py > /tmp/w-fuzz-scratch/crash_cpu.py
